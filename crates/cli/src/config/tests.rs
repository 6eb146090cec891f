//! What wins over what, and what is said about values that cannot be used.

use super::*;
use crate::commands::config::as_text;
use expect_test::{Expect, expect};

/// Resolves with a file of `text` in a fresh home.
fn resolve(flags: &[(&'static str, &str)], variables: &[(&str, &str)], text: &str) -> Resolved {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(file_in(home.path()), text).unwrap();
    let path = home.path().display().to_string();
    let flags = flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    let config = Config::resolve(flags, |name| match name {
        "METTLE_HOME" => Some(path.clone()),
        _ => {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    });
    Resolved { config, path }
}

struct Resolved {
    config: Result<Config, ConfigError>,
    path: String,
}

impl Resolved {
    fn show(self, names: &[&str]) -> String {
        let config = match self.config {
            Ok(config) => config,
            Err(error) => return error.0.replace(&self.path, "HOME"),
        };
        let line = |name: &&str| {
            let Found { value, origin } = config.get(name);
            format!("{name} = {value:?} from {origin}\n").replace(&self.path, "HOME")
        };
        names.iter().map(line).collect()
    }

    fn problem(self) -> String {
        let problem = Settings::new(&self.config.unwrap()).expect_err("must be refused");
        problem.0.replace(&self.path, "HOME")
    }
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let names = ["threads", "port", "model", "kv-cache-dtype", "prefix-cache"];
    let file = "# mine\nthreads = 3\nport = 3\nmodel = \"a b\" # comment\nkv_cache_dtype = f32\n";
    let variables = [("METTLE_THREADS", "2"), ("METTLE_PORT", "2")];
    expect![[r#"
        threads = "1" from flag --threads
        port = "2" from environment METTLE_PORT
        model = "a b" from HOME/config.toml:4
        kv-cache-dtype = "f32" from HOME/config.toml:5
        prefix-cache = "on" from default
    "#]]
    .assert_eq(&resolve(&[("threads", "1")], &variables, file).show(&names));
}

#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let variables = [("METTLE_PORT", ""), ("HF_TOKEN", "secret")];
    expect![[r#"
        port = "8000" from default
        hub-token = "secret" from environment HF_TOKEN
    "#]]
    .assert_eq(&resolve(&[], &variables, "").show(&["port", "hub-token"]));
}

#[test]
fn our_names_win_over_inherited_ones() {
    let inherited = [
        ("VLLM_METAL_FUSED_O_PROJ_RESIDUAL", "0"),
        ("VLLM_PLATFORM", "cpu"),
        ("VLLM_API_KEY", "k"),
    ];
    expect![[r#"
        disable-pass = "residual-epilogue" from environment VLLM_METAL_FUSED_O_PROJ_RESIDUAL
        device = "cpu" from environment VLLM_PLATFORM
        api-key = "k" from environment VLLM_API_KEY
    "#]]
    .assert_eq(&resolve(&[], &inherited, "").show(&["disable-pass", "device", "api-key"]));
    let both = [("METTLE_DEVICE", "auto"), ("VLLM_PLATFORM", "cpu")];
    expect![[r#"
        device = "auto" from environment METTLE_DEVICE
    "#]]
    .assert_eq(&resolve(&[], &both, "").show(&["device"]));
}

#[test]
fn the_table_shows_every_setting_and_hides_secrets() {
    let variables = [
        ("HF_TOKEN", "hf_secret"),
        ("VLLM_METAL_ATTENTION", "1"),
        ("VLLM_METAL_SELECTIVE_LM_HEAD", "1"),
    ];
    let resolved = resolve(&[("api-key", "a,b"), ("seed", "7")], &variables, "");
    let text = as_text(resolved.config.as_ref().unwrap());
    expect![[r#"
        home                     HOME environment METTLE_HOME
        model                    smollm2:135m                 default
        device                   auto                         default
        strict                   off                          default
        threads                  (one for each core)          default
        cpu-isa                  auto                         default
        kv-cache-dtype           f16                          default
        kv-memory                (as the context needs)       default
        max-model-len            (the model's own limit)      default
        max-num-batched-tokens   512                          default
        load-format              auto                         default
        disable-pass             (none)                       default
        prefix-cache             on                           default
        seed                     7                            flag --seed
        host                     127.0.0.1                    default
        port                     8000                         default
        served-model-name        (the model's name)           default
        api-key                  (set)                        flag --api-key
        shutdown-timeout         30                           default
        max-num-seqs             64                           default
        max-queue                1024                         default
        max-logprobs             20                           default
        allowed-origins          *                            default
        max-body-bytes           32M                          default
        request-timeout          (never)                      default
        tool-call-parser         auto                         default
        reasoning-parser         auto                         default
        pooling                  auto                         default
        hub-endpoint             https://huggingface.co       default
        hub-token                (set)                        environment HF_TOKEN
        offline                  off                          default

        file: HOME/config.toml

        variables of earlier engines that are set:
        VLLM_METAL_SELECTIVE_LM_HEAD=1: no effect: logits exist only for rows that need them
        VLLM_METAL_ATTENTION=1: accepted, no effect yet
    "#]]
    .assert_eq(&one_width(&text, &resolved.path));
}

/// The column after the temporary path is as wide as the path.
fn one_width(text: &str, path: &str) -> String {
    let padded = format!("{path:<28} ");
    text.replace(&padded, "HOME ").replace(path, "HOME")
}

#[test]
fn files_that_cannot_be_read_say_where() {
    let check =
        |text: &str, expected: Expect| expected.assert_eq(&resolve(&[], &[], text).show(&[]));
    check(
        "\nport 80\n",
        expect!["HOME/config.toml:2: `port 80` is not of the form key = value"],
    );
    check(
        "prot = 80",
        expect!["HOME/config.toml:1: there is no setting prot; see mettle config"],
    );
    check(
        "home = /x",
        expect!["HOME/config.toml:1: there is no setting home; see mettle config"],
    );
    check(
        "model = \"x",
        expect!["HOME/config.toml:1: model: the closing quote is missing"],
    );
    check(
        "port = 1\nport = 2",
        expect!["HOME/config.toml:2: port is set twice"],
    );
}

#[test]
fn values_that_cannot_be_used_name_their_origin() {
    let flag = |name, value, expected: Expect| {
        expected.assert_eq(&resolve(&[(name, value)], &[], "").problem());
    };
    flag(
        "threads",
        "0",
        expect![[r#"--threads is "0", it must be a whole number above 0"#]],
    );
    flag(
        "threads",
        "-1",
        expect![[r#"--threads is "-1", it must be a whole number above 0"#]],
    );
    let best = mettle_cpu::Isa::available()
        .iter()
        .map(|isa| isa.name())
        .collect::<Vec<_>>();
    let known = format!("auto, {}", best.join(", "));
    let (others, last) = known.rsplit_once(", ").unwrap();
    assert_eq!(
        resolve(&[("cpu-isa", "mmx")], &[], "").problem(),
        format!("--cpu-isa is \"mmx\", it must be {others} or {last} (what this processor has)")
    );
    flag(
        "port",
        "70000",
        expect![[r#"--port is "70000", it must be a number from 0 to 65535"#]],
    );
    flag(
        "device",
        "tpu",
        expect![[r#"--device is "tpu", it must be auto, metal, cuda, cpu or emulator"#]],
    );
    flag(
        "kv-cache-dtype",
        "f8",
        expect![[r#"--kv-cache-dtype is "f8", it must be f16 or f32"#]],
    );
    flag(
        "kv-memory",
        "lots",
        expect![[r#"--kv-memory is "lots", it must be a number of bytes above 0, as 512M or 2G"#]],
    );
    flag(
        "load-format",
        "gguf",
        expect![[r#"--load-format is "gguf", it must be auto or dummy"#]],
    );
    flag(
        "max-num-batched-tokens",
        "",
        expect![[r#"--max-num-batched-tokens is "", it must be a whole number from 1 to 65536"#]],
    );
    flag(
        "max-num-batched-tokens",
        "65537",
        expect![[
            r#"--max-num-batched-tokens is "65537", it must be a whole number from 1 to 65536"#
        ]],
    );
    let variable = resolve(&[], &[("METTLE_SEED", "x")], "");
    expect![[r#"METTLE_SEED is "x", it must be a whole number"#]].assert_eq(&variable.problem());
    let file = resolve(&[], &[], "prefix-cache = maybe");
    expect![[r#"HOME/config.toml:1: prefix-cache is "maybe", it must be on or off"#]]
        .assert_eq(&file.problem());
}
