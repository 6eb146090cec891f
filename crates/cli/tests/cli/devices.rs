//! Where a model runs: named devices, what is said when one is missing or cannot, and the checks of a device.

use crate::mettle::{Mettle, fixture};
use expect_test::expect;

#[test]
#[cfg(not(target_os = "macos"))]
fn a_named_device_that_is_missing_is_an_error() {
    let model = fixture("llama/model.gguf");
    let stderr = Mettle::new().fail(1, &["run", "--device", "metal", "-m", &model, "hi"]);
    expect!["error: metal is not available: this is not a Mac"].assert_eq(stderr.trim_end());
}

#[test]
fn the_cpu_validates_itself() {
    let model = fixture("qwen2/model.gguf");
    let args = ["validate", "-m", &model, "--device", "cpu", "--tokens", "9"];
    let stdout = Mettle::new().succeed(&args);
    let last = stdout.lines().last().unwrap_or_default();
    expect!["log-probabilities: mean difference 0.000000 (limit 0.02), largest 0.000000; the same most likely token at 9 of 9 places"]
        .assert_eq(last);
    assert!(stdout.contains("layer.0.attn_norm"), "{stdout}");
}

#[test]
fn a_folder_without_fixtures_validates_nothing() {
    let mettle = Mettle::new();
    let stderr = mettle.fail(1, &["validate", "--fixtures", ".", "--device", "cpu"]);
    assert!(stderr.contains("error: . holds no fixture"), "{stderr}");
}

#[cfg(not(feature = "emulator"))]
#[test]
fn the_emulator_is_a_feature() {
    let stderr = Mettle::new().fail(1, &["validate", "--kernels", "--device", "emulator"]);
    expect![
        "error: emulator is not available: this binary was built without the feature `emulator`"
    ]
    .assert_eq(stderr.trim_end());
}

#[cfg(feature = "emulator")]
mod emulated {
    use super::*;

    #[test]
    fn answers_are_those_of_the_cpu() {
        let model = fixture("llama/model.gguf");
        let text = |device| {
            let args = [
                "run",
                "--raw",
                "--max-tokens",
                "5",
                "--device",
                device,
                "-m",
                &model,
                "abc",
            ];
            Mettle::new().succeed(&args)
        };
        assert_eq!(text("emulator"), text("cpu"));
    }

    /// The KV cache in f32 is for CPUs: without --strict the CPU takes over, and one line says so.
    #[test]
    fn what_a_device_cannot_run_falls_back_unless_strict() {
        let model = fixture("llama/model.gguf");
        let mut args = vec![
            "run",
            "--raw",
            "--max-tokens",
            "2",
            "--kv-cache-dtype",
            "f32",
            "--device",
            "emulator",
            "-m",
            &model,
            "abc",
        ];
        let outcome = Mettle::new().run(&args);
        assert_eq!(outcome.code, Some(0));
        expect!["note: the emulator backend has no KV cache in f32 (--kv-cache-dtype f16); the CPU takes over (--strict forbids that)"]
            .assert_eq(outcome.stderr.trim_end());
        args.push("--strict");
        let stderr = Mettle::new().fail(1, &args);
        expect!["error: model cannot run: the emulator backend has no KV cache in f32 (--kv-cache-dtype f16)"]
            .assert_eq(stderr.trim_end());
    }

    #[test]
    fn kernels_are_tested_from_the_binary() {
        let mettle = Mettle::new();
        let kernels = |filter| {
            let args = [
                "validate",
                "--kernels",
                "--device",
                "emulator",
                "--filter",
                filter,
            ];
            mettle.run(&args)
        };
        let outcome = kernels("top_k");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(
            outcome.stdout.contains("kernel tests passed in"),
            "{outcome:?}"
        );
        let nothing = kernels("no such kernel");
        assert_eq!(nothing.code, Some(1));
        assert!(nothing.stderr.contains("no kernel test has"), "{nothing:?}");
    }

    #[test]
    fn layers_are_compared_with_the_cpu() {
        let model = fixture("qwen3/model.gguf");
        let args = [
            "validate", "-m", &model, "--device", "emulator", "--tokens", "20",
        ];
        let stdout = Mettle::new().succeed(&args);
        assert!(
            stdout.contains("the same most likely token at 20 of 20 places"),
            "{stdout}"
        );
    }
}
