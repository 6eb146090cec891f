//! Owns the list of settings: their keys, flags, environment variables and defaults.

/// One setting. The key is also its name in the file; several values of a list are separated by commas.
pub struct Key {
    pub name: &'static str,
    /// Empty where there is no flag.
    pub flag: &'static str,
    /// In order: the first that is set counts.
    pub variables: &'static [&'static str],
    /// What holds where nothing is set, as text of the same form; empty means "not set".
    pub default: &'static str,
    /// What the default means where it is empty.
    pub unset: &'static str,
    pub is_secret: bool,
}

const fn key(
    name: &'static str,
    flag: &'static str,
    variables: &'static [&'static str],
    default: &'static str,
    unset: &'static str,
) -> Key {
    Key {
        name,
        flag,
        variables,
        default,
        unset,
        is_secret: false,
    }
}

const fn secret(key: Key) -> Key {
    Key {
        is_secret: true,
        ..key
    }
}

pub const KEYS: &[Key] = &[
    key(
        "home",
        "",
        &["METTLE_HOME"],
        "",
        "the platform's cache folder",
    ),
    key(
        "model",
        "--model",
        &["METTLE_MODEL"],
        mettle_weights::download::DEFAULT_MODEL,
        "",
    ),
    key("device", "--device", &["METTLE_DEVICE"], "auto", ""),
    key("strict", "--strict", &["METTLE_STRICT"], "off", ""),
    key(
        "threads",
        "--threads",
        &["METTLE_THREADS"],
        "",
        "one for each core",
    ),
    key("cpu-isa", "--cpu-isa", &["METTLE_CPU_ISA"], "auto", ""),
    key(
        "kv-cache-dtype",
        "--kv-cache-dtype",
        &["METTLE_KV_CACHE_DTYPE"],
        "f16",
        "",
    ),
    key(
        "kv-memory",
        "--kv-memory",
        &["METTLE_KV_MEMORY"],
        "",
        "as the context needs",
    ),
    key(
        "max-model-len",
        "--max-model-len",
        &["METTLE_MAX_MODEL_LEN"],
        "",
        "the model's own limit",
    ),
    key(
        "max-num-batched-tokens",
        "--max-num-batched-tokens",
        &["METTLE_MAX_NUM_BATCHED_TOKENS"],
        "512",
        "",
    ),
    key(
        "load-format",
        "--load-format",
        &["METTLE_LOAD_FORMAT"],
        "auto",
        "",
    ),
    key(
        "disable-pass",
        "--disable-pass",
        &["METTLE_DISABLE_PASS"],
        "",
        "none",
    ),
    key(
        "prefix-cache",
        "--no-prefix-cache",
        &["METTLE_PREFIX_CACHE"],
        "on",
        "",
    ),
    key("seed", "--seed", &["METTLE_SEED"], "", "random"),
    key("host", "--host", &["METTLE_HOST"], "127.0.0.1", ""),
    key("port", "--port", &["METTLE_PORT"], "8000", ""),
    key(
        "served-model-name",
        "--served-model-name",
        &["METTLE_SERVED_MODEL_NAME"],
        "",
        "the model's name",
    ),
    secret(key(
        "api-key",
        "--api-key",
        &["METTLE_API_KEY", "VLLM_API_KEY"],
        "",
        "none: open to all",
    )),
    key(
        "shutdown-timeout",
        "--shutdown-timeout",
        &["METTLE_SHUTDOWN_TIMEOUT"],
        "30",
        "",
    ),
    key(
        "max-num-seqs",
        "--max-num-seqs",
        &["METTLE_MAX_NUM_SEQS"],
        "64",
        "",
    ),
    key(
        "max-queue",
        "--max-queue",
        &["METTLE_MAX_QUEUE"],
        "1024",
        "",
    ),
    key(
        "max-logprobs",
        "--max-logprobs",
        &["METTLE_MAX_LOGPROBS"],
        "20",
        "",
    ),
    key(
        "allowed-origins",
        "--allowed-origins",
        &["METTLE_ALLOWED_ORIGINS"],
        "*",
        "",
    ),
    key(
        "max-body-bytes",
        "--max-body-bytes",
        &["METTLE_MAX_BODY_BYTES"],
        "32M",
        "",
    ),
    key(
        "request-timeout",
        "--request-timeout",
        &["METTLE_REQUEST_TIMEOUT"],
        "",
        "never",
    ),
    key(
        "tool-call-parser",
        "--tool-call-parser",
        &["METTLE_TOOL_CALL_PARSER"],
        "auto",
        "",
    ),
    key(
        "reasoning-parser",
        "--reasoning-parser",
        &["METTLE_REASONING_PARSER"],
        "auto",
        "",
    ),
    key("pooling", "--pooling", &["METTLE_POOLING"], "auto", ""),
    key(
        "hub-endpoint",
        "",
        &["METTLE_HUB_ENDPOINT", "HF_ENDPOINT"],
        "https://huggingface.co",
        "",
    ),
    secret(key(
        "hub-token",
        "",
        &["METTLE_HUB_TOKEN", "HF_TOKEN"],
        "",
        "none",
    )),
    key(
        "offline",
        "",
        &["METTLE_OFFLINE", "HF_HUB_OFFLINE"],
        "off",
        "",
    ),
];

/// Variables of earlier engines that are understood. Each names what became of its switch.
pub const INHERITED: &[(&str, &str)] = &[
    (
        "VLLM_METAL_FUSED_O_PROJ_RESIDUAL",
        "0 is --disable-pass residual-epilogue",
    ),
    (
        "VLLM_METAL_SELECTIVE_LM_HEAD",
        "no effect: logits exist only for rows that need them",
    ),
    (
        "VLLM_METAL_REDUCE_BARRIERS",
        "no effect: barriers are computed, none is superfluous",
    ),
    (
        "VLLM_METAL_SCRATCH_POOL_MB",
        "no effect: scratch memory is planned from the model",
    ),
    ("VLLM_METAL_ATTENTION", "accepted, no effect yet"),
    ("VLLM_APPLE_USE_ENGINE", "accepted, no effect yet"),
    ("VLLM_APPLE_ENGINE_PREFILL", "accepted, no effect yet"),
    ("VLLM_GEMM_BACKEND", "accepted, no effect yet"),
    ("VLLM_METAL_GEMM_DEBUG", "accepted, no effect yet"),
    ("VLLM_METAL_GEMM_VERIFY", "accepted, no effect yet"),
    ("VLLM_METAL_TOPK_LOGITS", "accepted, no effect yet"),
    ("VLLM_METAL_MAX_BATCH_SIZE", "accepted, no effect yet"),
    ("VLLM_METAL_STRICT_NO_MPS", "accepted, no effect yet"),
    (
        "VLLM_PLATFORM",
        "cpu is --device cpu; others: accepted, no effect yet",
    ),
];
