//! Owns a server under test: a mock engine, a tiny tokenizer, a free port.

use crate::client::{self, PATIENCE, Response};
use mettle_engine::mock::{MockExecutable, MockStep};
use mettle_engine::{Engine, EngineHandle, EngineOptions};
use mettle_plan::{Executable, KvElement, KvGroup, PageLayout, Plane, Retention, Sizes};
use mettle_server::{App, AppOptions, serve};
use mettle_text::{ChatTemplate, TemplateSpecials, Tokenizer};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

pub const VOCABULARY: usize = 267;
pub const CONTEXT: usize = 256;
/// Of the KV cache.
pub const PAGES: usize = 64;
pub const NAME: &str = "owner/tiny";

pub struct Server {
    pub address: SocketAddr,
    pub engine: EngineHandle,
    pub tokenizer: Arc<Tokenizer>,
    pub stop: Option<oneshot::Sender<()>>,
    /// Hears when the server has ended.
    pub ended: Mutex<Receiver<()>>,
    runtime: Option<Runtime>,
}

pub struct Setup {
    pub options: AppOptions,
    pub max_queue: usize,
    pub max_sequences: usize,
    pub context: usize,
    /// How long a stopping server waits for its requests.
    pub drain: Duration,
    pub hook: Box<dyn FnMut(u64) -> MockStep + Send>,
    /// In place of the mock, with the same vocabulary and as many pages, or with a tokenizer and a vocabulary of its own and
    /// no cache.
    pub executable: Option<Box<dyn Executable>>,
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub vocabulary: usize,
    /// Of a model with an encoder and a decoder.
    pub decoder_start: Option<u32>,
}

/// Every message as `role:content;`, and `assistant:` where an answer is to come.
pub const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

/// The options of a server under test.
pub fn options() -> AppOptions {
    let template = ChatTemplate::new(TEMPLATE, TemplateSpecials::default()).unwrap();
    AppOptions {
        template: Some(Arc::new(template)),
        ..AppOptions::new(NAME)
    }
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            options: options(),
            max_queue: 64,
            max_sequences: 1,
            context: CONTEXT,
            drain: PATIENCE,
            hook: Box::new(|_| MockStep::Run),
            executable: None,
            tokenizer: None,
            vocabulary: VOCABULARY,
            decoder_start: None,
        }
    }
}

pub fn layout() -> PageLayout {
    let plane = Plane {
        heads: 1,
        width: 16,
        element: KvElement::F16,
    };
    let group = KvGroup {
        name: "all".into(),
        layers: 1,
        planes: vec![plane; 2],
        retention: Retention::Full,
    };
    PageLayout::new(&[group], 16)
}

impl Server {
    pub fn start() -> Server {
        Server::with(Setup::default())
    }

    pub fn with(setup: Setup) -> Server {
        let tokenizer = setup.tokenizer.unwrap_or_else(|| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/llama");
            let json = std::fs::read(folder.join("tokenizer.json")).unwrap();
            Arc::new(Tokenizer::from_json(&json, None).unwrap())
        });
        let executable: Box<dyn Executable> = match setup.executable {
            Some(executable) => executable,
            None => {
                let bounds = Sizes::bounds(512, setup.max_sequences);
                let mock = MockExecutable::new(VOCABULARY, layout(), PAGES, bounds);
                Box::new(mock.with_hook(setup.hook))
            }
        };
        let pages = match executable.page_layout().groups.is_empty() {
            true => 0,
            false => PAGES,
        };
        let options = EngineOptions {
            max_queue: setup.max_queue,
            max_sequences: setup.max_sequences,
            decoder_start: setup.decoder_start,
            ..EngineOptions::new(setup.vocabulary, setup.context, pages)
        };
        let engine = Engine::start(executable, options).unwrap();
        let app = Arc::new(App::new(engine.clone(), tokenizer.clone(), setup.options));
        let runtime = Runtime::new().unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, ended) = channel();
        runtime.spawn(async move {
            let stop = async {
                // A test that does not stop its server drops the sender with the runtime.
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            serve(listener, app, stop, setup.drain).await.unwrap();
            let _ = tell.send(());
        });
        Server {
            address,
            engine,
            tokenizer,
            stop: Some(stop),
            ended: Mutex::new(ended),
            runtime: Some(runtime),
        }
    }

    pub fn get(&self, path: &str) -> Response {
        client::get(self.address, path)
    }

    pub fn post(&self, path: &str, body: &str) -> Response {
        client::post(self.address, path, body)
    }

    /// The response to a completion request that must succeed.
    pub fn complete(&self, body: Value) -> Value {
        let response = self.post("/v1/completions", &body.to_string());
        assert_eq!(response.status, 200, "{body}: {response:?}");
        response.json()
    }

    /// The response to a request that must succeed.
    pub fn ask(&self, path: &str, body: Value) -> Value {
        let response = self.post(path, &body.to_string());
        assert_eq!(response.status, 200, "{body}: {response:?}");
        response.json()
    }

    pub fn chat(&self, body: Value) -> Value {
        self.ask("/v1/chat/completions", body)
    }

    /// The events of a stream that must succeed: their names (empty without one) and data.
    pub fn stream(&self, path: &str, mut body: Value) -> Vec<(String, String)> {
        body["stream"] = true.into();
        let response = self.post(path, &body.to_string());
        assert_eq!(response.status, 200, "{body}: {response:?}");
        assert!(response.head.contains("text/event-stream"), "{response:?}");
        client::events(&response.body)
    }

    /// The chunks of a stream that ends with [DONE].
    pub fn chunks(&self, path: &str, body: Value) -> Vec<Value> {
        let mut events = self.stream(path, body);
        let done = events.pop().expect("an end");
        assert_eq!(done, (String::new(), "[DONE]".to_owned()));
        let chunk = |(name, data): (String, String)| {
            assert_eq!(name, "");
            serde_json::from_str(&data).expect("JSON")
        };
        events.into_iter().map(chunk).collect()
    }

    /// Waits until the engine has nothing to do.
    pub fn wait_until_idle(&self) {
        let start = Instant::now();
        loop {
            let stats = self.engine.stats();
            if stats.running + stats.waiting == 0 {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{stats:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The log-probabilities that the mock's next token has after `tokens`.
pub fn logprobs_after(tokens: &[u32]) -> Vec<f64> {
    let logits = MockExecutable::logits_after(VOCABULARY, &layout(), tokens);
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    logits.iter().map(|l| f64::from(*l) - sum.ln()).collect()
}

/// What a greedy request makes of `prompt`.
pub fn greedy(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let logprobs = logprobs_after(&tokens);
        let best = (0..VOCABULARY)
            .rev()
            .max_by(|a, b| logprobs[*a].total_cmp(&logprobs[*b]));
        tokens.push(best.unwrap() as u32);
    }
    tokens.split_off(prompt.len())
}
