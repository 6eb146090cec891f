//! What is fetched is whole and right, or an error says why not.

use crate::hub_server::{Fault, HubServer, Repository};
use expect_test::{Expect, expect};
use mettle_weights::WeightsError;
use mettle_weights::download::{Home, Located, NoProgress, Options, Progress, list, locate, pull};
use std::path::{Path, PathBuf};

struct Client {
    home: Home,
    options: Options,
    _folder: tempfile::TempDir,
}

impl Client {
    fn of(server: &HubServer) -> Client {
        let folder = tempfile::tempdir().unwrap();
        Client {
            home: Home::discover(Some(folder.path().to_owned())).unwrap(),
            options: Options {
                hub_endpoint: server.endpoint.clone(),
                ..Options::default()
            },
            _folder: folder,
        }
    }

    fn pull(&self, model: &str) -> Result<PathBuf, WeightsError> {
        pull(model, &self.home, &self.options, &mut NoProgress)
    }

    fn check_refusal(&self, model: &str, expected: Expect) {
        let text = self.pull(model).unwrap_err().to_string();
        let text = text.replace(&self.options.hub_endpoint, "HUB");
        expected.assert_eq(&text.replace(&self.home.root().display().to_string(), "HOME"));
    }

    fn folder(&self) -> PathBuf {
        self.home.root().join("hub/owner--tiny")
    }
}

fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31) >> 3) as u8).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn gguf(fault: Fault) -> HubServer {
    Repository::default()
        .large("tiny.gguf", &contents(300_000), fault)
        .serve()
}

#[test]
fn a_model_folder_is_fetched_once() {
    let server = Repository::default()
        .small(".gitattributes", b"x")
        .small("README.md", b"x")
        .small("config.json", b"{}")
        .small("tokenizer.json", b"{}")
        .small("sub/model.safetensors", b"x")
        .large("model.safetensors", &contents(5000), Fault::None)
        .large("tiny.gguf", &contents(10), Fault::None)
        .serve();
    let client = Client::of(&server);
    let not_cached = Located::NotCached {
        name: "owner/tiny".into(),
        bytes: None,
    };
    assert_eq!(locate("owner/tiny", &client.home).unwrap(), not_cached);
    let folder = client.pull("owner/tiny").unwrap();
    assert_eq!(
        names(&folder),
        [
            ".complete",
            "config.json",
            "model.safetensors",
            "tokenizer.json"
        ]
    );
    assert_eq!(
        server.requests(),
        ["list", "config.json", "tokenizer.json", "model.safetensors"]
    );
    assert_eq!(client.pull("owner/tiny").unwrap(), folder);
    assert!(server.requests().is_empty());
    assert_eq!(
        locate("owner/tiny", &client.home).unwrap(),
        Located::Path(folder)
    );

    client.pull("owner/tiny:tiny.gguf").unwrap();
    let listed: Vec<(String, u64)> = list(&client.home)
        .unwrap()
        .into_iter()
        .map(|m| (m.name, m.bytes))
        .collect();
    assert_eq!(listed[0].0, "owner/tiny");
    assert_eq!(listed[1], ("owner/tiny:tiny.gguf".to_owned(), 10));
}

#[test]
fn a_name_means_the_same_whatever_else_is_cached() {
    let server = Repository::default()
        .small("config.json", b"{}")
        .large("model.safetensors", b"x", Fault::None)
        .large("tiny.gguf", b"y", Fault::None)
        .serve();
    let client = Client::of(&server);
    client.pull("owner/tiny:tiny.gguf").unwrap();
    let located = locate("owner/tiny", &client.home).unwrap();
    assert!(matches!(located, Located::NotCached { .. }), "{located:?}");
    assert_eq!(client.pull("owner/tiny").unwrap(), client.folder());

    let client = Client::of(&gguf(Fault::None));
    let path = client.pull("owner/tiny").unwrap();
    assert_eq!(
        locate("owner/tiny", &client.home).unwrap(),
        Located::Path(path)
    );
}

#[test]
fn shards_are_those_that_the_index_names() {
    let index = br#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#;
    let server = Repository::default()
        .small("config.json", b"{}")
        .small("model.safetensors.index.json", index)
        .large("m-1.safetensors", b"one", Fault::None)
        .large("m-2.safetensors", b"two", Fault::None)
        .large("consolidated.safetensors", b"both", Fault::None)
        .serve();
    let folder = Client::of(&server);
    folder.pull("owner/tiny").unwrap();
    assert_eq!(
        server.requests()[2..],
        [
            "model.safetensors.index.json",
            "m-1.safetensors",
            "m-2.safetensors"
        ]
    );
}

#[test]
fn all_parts_of_a_split_model_are_fetched() {
    let (one, two) = (
        "tiny-Q8_0-00001-of-00002.gguf",
        "tiny-Q8_0-00002-of-00002.gguf",
    );
    let server = Repository::default()
        .large(&format!("Q8_0/{one}"), &contents(5000), Fault::None)
        .large(&format!("Q8_0/{two}"), &contents(6000), Fault::None)
        .large("tiny-Q4_0.gguf", &contents(10), Fault::None)
        .large("lone-00002-of-00002.gguf", &contents(10), Fault::None)
        .large("half-F16-00001-of-00002.gguf", &contents(10), Fault::None)
        .serve();
    let client = Client::of(&server);
    let first = client.pull("owner/tiny:Q8_0").unwrap();
    assert_eq!(first, client.folder().join(one));
    assert_eq!(names(&client.folder()), [one, two]);
    let listed = list(&client.home).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, format!("owner/tiny:{one}"));
    assert_eq!(listed[0].bytes, 11_000);
    // A part that was lost is fetched again, and until then the model is not there.
    std::fs::remove_file(client.folder().join(two)).unwrap();
    assert!(list(&client.home).unwrap().is_empty());
    assert!(matches!(
        locate("owner/tiny:Q8_0", &client.home).unwrap(),
        Located::NotCached { .. }
    ));
    client.pull("owner/tiny:Q8_0").unwrap();
    assert_eq!(names(&client.folder()), [one, two]);
    client.check_refusal(
        "owner/tiny:F16",
        expect![[r#"
            owner/tiny:F16 could not be fetched:
              - from the hub (owner/tiny): owner/tiny has no file half-F16-00002-of-00002.gguf
            Get a .gguf file by other means and give its path instead of the name."#]],
    );
}

#[test]
fn a_cut_connection_is_taken_up_again() {
    let server = gguf(Fault::CutAfter(130_000));
    let path = Client::of(&server).pull("owner/tiny").unwrap_and_read();
    assert!(path == contents(300_000));
    assert_eq!(
        server.requests(),
        [
            "list",
            "tiny.gguf",
            "tiny.gguf from 130000",
            "tiny.gguf from 260000"
        ]
    );
}

#[test]
fn what_an_earlier_run_left_is_used() {
    let server = gguf(Fault::None);
    let client = Client::of(&server);
    std::fs::create_dir_all(client.folder()).unwrap();
    let part = client.folder().join("tiny.gguf.part");
    std::fs::write(&part, &contents(300_000)[..1234]).unwrap();
    assert!(client.pull("owner/tiny").unwrap_and_read() == contents(300_000));
    assert_eq!(server.requests(), ["list", "tiny.gguf from 1234"]);
    assert!(!part.exists());
}

#[test]
fn what_an_earlier_run_left_is_not_trusted() {
    for left in [vec![9; 1234], vec![9; 300_000], vec![9; 300_001]] {
        let server = gguf(Fault::None);
        let client = Client::of(&server);
        std::fs::create_dir_all(client.folder()).unwrap();
        std::fs::write(client.folder().join("tiny.gguf.part"), &left).unwrap();
        assert!(client.pull("owner/tiny").unwrap_and_read() == contents(300_000));
        assert_eq!(server.requests().last().unwrap(), "tiny.gguf");
    }
}

#[test]
fn a_server_that_ignores_ranges_starts_over() {
    let server = gguf(Fault::IgnoresRanges);
    let client = Client::of(&server);
    std::fs::create_dir_all(client.folder()).unwrap();
    let part = client.folder().join("tiny.gguf.part");
    std::fs::write(&part, &contents(300_000)[..1234]).unwrap();
    assert!(client.pull("owner/tiny").unwrap_and_read() == contents(300_000));
    assert_eq!(server.requests(), ["list", "tiny.gguf from 1234"]);
}

#[test]
fn a_server_that_never_gets_to_the_end_is_given_up() {
    let server = gguf(Fault::Hopeless(1000));
    let client = Client::of(&server);
    client.check_refusal("owner/tiny", expect![[r#"
        owner/tiny could not be fetched:
          - from the hub (owner/tiny): HUB/owner/tiny/resolve/0123456789abcdef/tiny.gguf: Peer disconnected
        Get a .gguf file by other means and give its path instead of the name."#]]);
    assert_eq!(server.requests().len(), 5);
    assert!(!client.folder().join("tiny.gguf").exists());
}

#[test]
fn wrong_contents_are_refused_and_removed() {
    let server = gguf(Fault::WrongContents);
    let client = Client::of(&server);
    client.check_refusal("owner/tiny", expect![[r#"
        owner/tiny could not be fetched:
          - from the hub (owner/tiny): HOME/hub/owner--tiny/tiny.gguf should have SHA-256 20508c3dbf04a872df56460db60c92ac53305065b5b72516b458815cd2dd2912, but fa4af1c83fb3c491358e2b7cf7aa4c3f1187802fae557bf4fb23e002db811248 came; it was deleted
        Get a .gguf file by other means and give its path instead of the name."#]]);
    assert!(names(&client.folder()).is_empty());
}

#[test]
fn refusals_of_the_server_are_explained() {
    let server = gguf(Fault::Status(403));
    Client::of(&server).check_refusal("owner/tiny", expect![[r#"
        owner/tiny could not be fetched:
          - from the hub (owner/tiny): HUB/owner/tiny/resolve/0123456789abcdef/tiny.gguf answered 403: the model needs an account that may read it (set a hub token)
        Get a .gguf file by other means and give its path instead of the name."#]]);
    Client::of(&server).check_refusal("owner/other", expect![[r#"
        owner/other could not be fetched:
          - from the hub (owner/other): HUB/api/models/owner/other?blobs=true answered 404: there is no such model or file
        Get a .gguf file by other means and give its path instead of the name."#]]);
    Client::of(&server).check_refusal("owner/tiny:Q9", expect![[r#"
        owner/tiny:Q9 could not be fetched:
          - from the hub (owner/tiny): owner/tiny:Q9 means none of the files; give one as owner/tiny:FILE out of:
              tiny.gguf
        Get a .gguf file by other means and give its path instead of the name."#]]);
    let empty = Repository::default().small("README.md", b"x").serve();
    Client::of(&empty).check_refusal(
        "owner/tiny",
        expect![[r#"
        owner/tiny could not be fetched:
          - from the hub (owner/tiny): owner/tiny holds neither model.safetensors nor a .gguf file
        Get a .gguf file by other means and give its path instead of the name."#]],
    );
    let bare = Repository::default().large("model.safetensors", b"x", Fault::None);
    Client::of(&bare.serve()).check_refusal(
        "owner/tiny",
        expect![[r#"
        owner/tiny could not be fetched:
          - from the hub (owner/tiny): owner/tiny has no file config.json
        Get a .gguf file by other means and give its path instead of the name."#]],
    );
}

#[test]
fn what_makes_a_vector_of_a_text_comes_along() {
    let server = Repository::default()
        .small("config.json", b"{}")
        .small("modules.json", b"[]")
        .small("1_Pooling/config.json", b"{\"a\":1}")
        .small("2_Dense/config.json", b"{}")
        .small("sentence_bert_config.json", b"{}")
        .large("model.safetensors", &contents(500), Fault::None)
        .serve();
    let client = Client::of(&server);
    let folder = client.pull("owner/tiny").unwrap();
    let pooling = std::fs::read(folder.join("1_Pooling/config.json")).unwrap();
    assert_eq!(pooling, b"{\"a\":1}");
    assert_eq!(names(&folder).len(), 6);
    assert!(!folder.join("2_Dense").exists());
}

#[test]
fn a_half_fetched_folder_is_no_model() {
    let server = Repository::default()
        .small("config.json", b"{}")
        .large("model.safetensors", &contents(500), Fault::Status(500))
        .serve();
    let client = Client::of(&server);
    client.pull("owner/tiny").unwrap_err();
    assert!(client.folder().join("config.json").exists());
    let located = locate("owner/tiny", &client.home).unwrap();
    assert!(matches!(located, Located::NotCached { .. }), "{located:?}");
    assert!(list(&client.home).unwrap().is_empty());
}

#[test]
fn a_hub_that_is_not_there_is_reported_soon() {
    let server = gguf(Fault::None);
    let mut client = Client::of(&server);
    // Port 1 is reserved and nothing listens there.
    client.options.hub_endpoint = "http://127.0.0.1:1".to_owned();
    let started = std::time::Instant::now();
    let error = client.pull("owner/tiny").unwrap_err();
    assert!(started.elapsed().as_secs() < 10);
    assert!(matches!(error, WeightsError::PullFailed { .. }), "{error}");
}

#[test]
fn two_that_want_the_same_model_fetch_it_once() {
    let server = gguf(Fault::None);
    let client = Client::of(&server);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| client.pull("owner/tiny").unwrap());
        }
    });
    assert_eq!(server.requests(), ["list", "tiny.gguf"]);
}

#[derive(Default)]
struct CancelsHalfway {
    cancel: std::sync::Arc<std::sync::atomic::AtomicBool>,
    steps: Vec<String>,
}

impl Progress for CancelsHalfway {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        self.steps.push(format!("{what} {total:?}"));
    }
    fn advance(&mut self, done: u64) {
        if done > 0 {
            self.cancel
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    fn finish(&mut self) {
        self.steps.push("finish".into());
    }
}

#[test]
fn cancelling_keeps_the_part_for_the_next_time() {
    let server = gguf(Fault::None);
    let client = Client::of(&server);
    let mut progress = CancelsHalfway {
        cancel: client.options.cancel.clone(),
        ..CancelsHalfway::default()
    };
    let error = pull("owner/tiny", &client.home, &client.options, &mut progress).unwrap_err();
    assert!(matches!(error, WeightsError::Cancelled), "{error}");
    assert_eq!(progress.steps, ["tiny.gguf Some(300000)", "finish"]);
    assert_eq!(names(&client.folder()), ["tiny.gguf.part"]);
    client
        .options
        .cancel
        .store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(client.pull("owner/tiny").unwrap_and_read() == contents(300_000));
}

trait ReadFile {
    fn unwrap_and_read(self) -> Vec<u8>;
}

impl ReadFile for Result<PathBuf, WeightsError> {
    fn unwrap_and_read(self) -> Vec<u8> {
        std::fs::read(self.unwrap()).unwrap()
    }
}
