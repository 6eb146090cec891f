//! Load on a server that misbehaves on purpose: every way to fail is counted as what it is, and times are right.

mod mock;

use mettle_bench::BenchError;
use mettle_bench::load::{
    BaseUrl, Dataset, Drive, Endpoint, FailureKind, Rate, RequestOptions, Run, Server, Summary,
    drive,
};
use mock::{Behaviour, Mock, Running};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DATASET: Dataset = Dataset::Random {
    input_len: 12,
    output_len: 5,
    spread: 0.0,
};

async fn connect(running: &Running, endpoint: Endpoint) -> Result<Server, BenchError> {
    let url = BaseUrl::parse(&running.url)?;
    Server::connect(url, Some("secret".to_owned()), None, endpoint).await
}

fn options(server: &Server) -> RequestOptions {
    RequestOptions {
        endpoint: server.endpoint,
        model: server.model.clone(),
        ignore_eos: true,
        temperature: 0.0,
        timeout: Duration::from_millis(800),
        cache_salt: "salt".to_owned(),
    }
}

async fn plan(server: &Server, prompts: usize, concurrency: usize) -> Drive {
    Drive {
        options: options(server),
        prompts: DATASET.prompts(server, prompts, 1).await.unwrap(),
        rate: Rate::Unlimited,
        concurrency: Some(concurrency),
        seed: 1,
    }
}

async fn run(mock: Mock, prompts: usize, concurrency: usize) -> (Run, Running) {
    let running = mock.start().await;
    let server = connect(&running, Endpoint::Completions).await.unwrap();
    let plan = plan(&server, prompts, concurrency).await;
    let run = drive(&server, plan, &AtomicBool::new(false), &mut |_| {}).await;
    (run, running)
}

#[tokio::test]
async fn times_and_tokens_of_a_good_server_are_right() {
    let (run, running) = run(Mock::default(), 8, 2).await;
    let summary = Summary::of(&run, &[]);
    assert_eq!((summary.completed, summary.failed), (8, 0));
    assert_eq!(
        (summary.total_input_tokens, summary.total_output_tokens),
        (96, 40)
    );
    assert_eq!(summary.total_cached_tokens, 24);
    assert_eq!(running.seen.most_at_once.load(Ordering::SeqCst), 2);
    for outcome in &run.outcomes {
        // 20 ms to the first token, 10 ms to each of the four others; a busy machine only makes it longer.
        let ttft = outcome.ttft.unwrap();
        assert!((0.02..0.5).contains(&ttft), "{ttft}");
        assert_eq!(outcome.gaps.len(), 4);
        assert!(outcome.latency >= 0.06, "{}", outcome.latency);
        let sum = ttft + outcome.gaps.iter().sum::<f64>();
        assert!((outcome.latency - sum).abs() < 1e-9);
    }
    // Four rounds of two.
    assert!(run.duration >= 4.0 * 0.06, "{}", run.duration);
    assert!(!run.samples.is_empty());
    let bodies = running.seen.bodies.lock().await;
    assert!(bodies.iter().all(|body| body["prompt"].is_array()));
    assert!(
        bodies
            .iter()
            .all(|body| body["ignore_eos"] == true && body["cache_salt"] == "salt")
    );
    let keys = running.seen.keys.lock().await;
    assert!(keys.iter().all(|key| key == "bearer secret") && !keys.is_empty());
}

#[tokio::test]
async fn every_failure_is_counted_as_what_it_is() {
    let behaviour = |number: usize| match number {
        0 => Behaviour::Busy,
        1 => Behaviour::Broken,
        2 => Behaviour::ErrorInside,
        3 => Behaviour::Stall,
        4 => Behaviour::Disconnect,
        5 => Behaviour::HangUp,
        6 => Behaviour::Malformed,
        7 => Behaviour::Empty,
        _ => Behaviour::Fine,
    };
    let mock = Mock {
        behaviour,
        ..Mock::default()
    };
    let (run, _) = run(mock, 10, 1).await;
    let kinds: Vec<Option<FailureKind>> = run
        .outcomes
        .iter()
        .map(|outcome| outcome.failure.as_ref().map(|failure| failure.kind))
        .collect();
    let wanted = [
        Some(FailureKind::Busy),
        Some(FailureKind::Status),
        Some(FailureKind::ServerError),
        Some(FailureKind::Timeout),
        Some(FailureKind::Disconnected),
        Some(FailureKind::Disconnected),
        Some(FailureKind::Malformed),
        Some(FailureKind::Malformed),
        None,
        None,
    ];
    assert_eq!(kinds, wanted);
    let messages: Vec<&str> = run
        .outcomes
        .iter()
        .filter_map(|outcome| Some(outcome.failure.as_ref()?.message.as_str()))
        .collect();
    assert_eq!(messages[0], "429 the queue is full");
    assert_eq!(messages[1], "500 <h1>oh no</h1>");
    assert_eq!(messages[2], "out of luck");
    let summary = Summary::of(&run, &[]);
    // Tokens of failed requests do not count.
    assert_eq!(
        (
            summary.completed,
            summary.failed,
            summary.total_output_tokens
        ),
        (2, 8, 10)
    );
    assert_eq!(summary.failures[FailureKind::Disconnected.name()], 2);
}

#[tokio::test]
async fn tokens_are_counted_however_the_server_tells_them() {
    for (behaviour, events) in [
        (Behaviour::UsageAtEnd, 5),
        (Behaviour::NoUsage, 5),
        (Behaviour::Pairs, 3),
    ] {
        let behaviour = match behaviour {
            Behaviour::UsageAtEnd => |_| Behaviour::UsageAtEnd,
            Behaviour::NoUsage => |_| Behaviour::NoUsage,
            _ => |_: usize| Behaviour::Pairs,
        };
        let mock = Mock {
            behaviour,
            ..Mock::default()
        };
        let (run, _) = run(mock, 1, 1).await;
        let outcome = &run.outcomes[0];
        assert_eq!(outcome.failure, None);
        assert_eq!((outcome.input_tokens, outcome.output_tokens), (12, 5));
        assert_eq!(outcome.gaps.len(), events - 1);
    }
}

#[tokio::test]
async fn an_open_loop_keeps_its_arrivals() {
    let running = Mock::default().start().await;
    let server = connect(&running, Endpoint::Completions).await.unwrap();
    let mut plan = plan(&server, 20, 1).await;
    plan.rate = Rate::PerSecond(40.0);
    plan.concurrency = None;
    let arrivals = plan.rate.arrivals(20, plan.seed);
    let mut told = 0;
    let run = drive(&server, plan, &AtomicBool::new(false), &mut |p| {
        told = p.ended
    })
    .await;
    assert_eq!((run.outcomes.len(), told), (20, 20));
    for (outcome, arrival) in run.outcomes.iter().zip(arrivals) {
        let late = outcome.sent - arrival.as_secs_f64();
        assert!((-0.002..0.4).contains(&late), "{late}");
    }
}

#[tokio::test]
async fn servers_that_refuse_ids_get_words_of_the_right_length() {
    let without_ids = Mock {
        takes_ids: false,
        ..Mock::default()
    };
    let without_tokenizer = Mock {
        tokenizes: false,
        ..Mock::default()
    };
    for mock in [without_ids, without_tokenizer] {
        let running = mock.start().await;
        let server = connect(&running, Endpoint::Completions).await.unwrap();
        assert_eq!(server.prompts_are(), "words");
        let dataset = Dataset::Random {
            input_len: 101,
            output_len: 2,
            spread: 0.0,
        };
        let mut plan = plan(&server, 1, 1).await;
        plan.prompts = dataset.prompts(&server, 1, 1).await.unwrap();
        let run = drive(&server, plan, &AtomicBool::new(false), &mut |_| {}).await;
        // The mock counts two tokens a word and one before them.
        assert_eq!(run.outcomes[0].input_tokens, 101);
    }
    let running = Mock::default().start().await;
    let server = connect(&running, Endpoint::Chat).await.unwrap();
    let plan = plan(&server, 1, 1).await;
    let run = drive(&server, plan, &AtomicBool::new(false), &mut |_| {}).await;
    assert_eq!(run.outcomes[0].input_tokens, 12);
    let bodies = running.seen.bodies.lock().await;
    assert_eq!(bodies[0]["messages"][0]["role"], "user");
}

#[tokio::test]
async fn a_stopped_run_gives_what_there_is() {
    let mock = Mock {
        behaviour: |number| match number {
            0 | 1 => Behaviour::Fine,
            _ => Behaviour::Stall,
        },
        ..Mock::default()
    };
    let running = mock.start().await;
    let server = connect(&running, Endpoint::Completions).await.unwrap();
    let mut plan = plan(&server, 10, 1).await;
    plan.options.timeout = Duration::from_secs(60);
    let stop = AtomicBool::new(false);
    let run = drive(&server, plan, &stop, &mut |progress| {
        stop.store(progress.ended == 2, Ordering::Relaxed);
    })
    .await;
    assert_eq!((run.outcomes.len(), run.unfinished), (2, 8));
    assert!(run.duration > 0.0);
}

#[tokio::test]
async fn what_cannot_be_measured_is_refused_in_one_line() {
    let url = |text: &str| BaseUrl::parse(text).unwrap();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let gone = url(&format!("http://127.0.0.1:{port}"));
    let error = Server::connect(gone, None, None, Endpoint::Completions)
        .await
        .unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }), "{error}");
    assert!(!error.to_string().contains('\n'));

    let running = Mock::default().start().await;
    let server = connect(&running, Endpoint::Completions).await.unwrap();
    let long = Dataset::Random {
        input_len: 990,
        output_len: 11,
        spread: 0.0,
    };
    let error = long.prompts(&server, 1, 1).await.unwrap_err().to_string();
    assert!(error.contains("1001") && error.contains("1000"), "{error}");
}

#[tokio::test]
async fn conversations_are_drawn_from_a_file() {
    let turns = |question: &str, answer: &str| {
        serde_json::json!({ "conversations": [
            { "from": "human", "value": question }, { "from": "gpt", "value": answer },
        ]})
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let long = "word ".repeat(1500);
    let all = [
        turns("too short", "a b c d e"),
        turns("one two three four five", "six seven eight nine"),
        turns(&long, "a b c d e"),
        turns("a b c d", "e f g h i j k"),
    ];
    std::fs::write(file.path(), serde_json::to_string(&all).unwrap()).unwrap();
    let running = Mock::default().start().await;
    let server = connect(&running, Endpoint::Completions).await.unwrap();
    let dataset = Dataset::conversations(file.path(), None).unwrap();
    let prompts = dataset.prompts(&server, 4, 9).await.unwrap();
    let mut lengths: Vec<_> = prompts
        .iter()
        .map(|p| (p.input_len, p.output_len))
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(4, 7), (4, 7), (5, 4), (5, 4)]);
    assert!(!dataset.ignores_eos());
}
