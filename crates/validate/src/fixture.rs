//! Owns the comparison with a fixture: a tiny model, and what transformers computed with it in f32.

use crate::difference::{Difference, log_softmax};
use crate::runner::{Runner, RunnerOptions, ValidateError};
use mettle_models::{Model, OpenOptions};
use mettle_plan::{Backend, Op, Plan, passes};
use mettle_tensor::{DType, TensorInfo};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Token ids and the reference's log-probabilities `[tokens][vocabulary]` of a tiny model.
#[derive(Clone, Debug)]
pub struct Reference {
    pub tokens: Vec<u32>,
    pub vocabulary: usize,
    pub log_probabilities: Vec<f32>,
    /// What running the reference itself in f16, and in bf16, costs: the mean difference to itself in f32.
    pub cost: Option<HalfCost>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HalfCost {
    pub f16: f64,
    pub bf16: f64,
}

impl Reference {
    /// Reads `reference.json` and `reference.f32` of a fixture's folder.
    pub fn read(folder: &Path) -> Result<Reference, ValidateError> {
        let bad = |path: &Path, reason: String| ValidateError::Fixture {
            path: path.to_owned(),
            reason,
        };
        let read = |name: &str| {
            let path = folder.join(name);
            let bytes = std::fs::read(&path).map_err(|e| bad(&path, e.to_string()))?;
            Ok::<_, ValidateError>((path, bytes))
        };
        let (path, text) = read("reference.json")?;
        let json: Value = serde_json::from_slice(&text).map_err(|e| bad(&path, e.to_string()))?;
        let missing = |what: &str| bad(&path, format!("it has no {what}"));
        let tokens = json["tokens"].as_array().ok_or_else(|| missing("tokens"))?;
        let tokens: Option<Vec<u32>> = tokens
            .iter()
            .map(|t| t.as_u64().and_then(|t| u32::try_from(t).ok()))
            .collect();
        let vocabulary = json["vocab_size"].as_u64();
        let (_, values) = read("reference.f32")?;
        Ok(Reference {
            tokens: tokens.ok_or_else(|| missing("tokens"))?,
            vocabulary: vocabulary.ok_or_else(|| missing("vocab_size"))? as usize,
            log_probabilities: values
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            cost: json["f16_mean_difference"]
                .as_f64()
                .zip(json["bf16_mean_difference"].as_f64())
                .map(|(f16, bf16)| HalfCost { f16, bf16 }),
        })
    }
}

/// The cost recorded with a fixture, or with the one that it stores in another type (`llama31` of `llama31-q8_0`).
fn cost_of(folder: &Path, reference: &Reference) -> Result<HalfCost, ValidateError> {
    if let Some(cost) = reference.cost {
        return Ok(cost);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let base = name.split('-').next().unwrap_or_default();
    let base = folder.with_file_name(base);
    let cost = Reference::read(&base)?.cost;
    cost.ok_or_else(|| ValidateError::Fixture {
        path: base,
        reason: "reference.json does not say what f16 costs".into(),
    })
}

/// One text through one model.
#[derive(Clone, Debug)]
pub struct FixtureResult {
    pub model: PathBuf,
    pub length: usize,
    pub chunk: usize,
    pub difference: Difference,
    pub allowed_mean: f64,
}

impl FixtureResult {
    pub fn is_within(&self) -> bool {
        self.difference.mean <= self.allowed_mean
    }
}

/// Lengths of text, each whole and in chunks.
const LENGTHS: [(usize, [usize; 2]); 3] = [(7, [7, 1]), (65, [65, 7]), (300, [300, 33])];

/// Runs a fixture's model on a 16-bit backend: the mean difference may be twice what 16 bits cost
/// transformers itself.
/// Every kernel that the plan names must have run as often as it says, and no other.
pub fn check_fixture(
    folder: &Path,
    file: &str,
    backend: &dyn Backend,
) -> Result<Vec<FixtureResult>, ValidateError> {
    let path = folder.join(file);
    let model = Model::open(&path, OpenOptions::default())?;
    let reference = Reference::read(folder)?;
    let cost = cost_of(folder, &reference)?;
    let is_bf16 = |tensor: &TensorInfo| tensor.dtype == DType::BF16;
    let cost = match model.tensors.tensors().iter().any(is_bf16) {
        true => cost.bf16,
        false => cost.f16,
    };
    let longest = LENGTHS[LENGTHS.len() - 1].0;
    let mut runner = Runner::new(&model, backend, RunnerOptions::new(longest))?;
    let mut results = Vec::new();
    let mut steps = 0;
    for (length, chunks) in LENGTHS {
        let expected = &reference.log_probabilities[..length * reference.vocabulary];
        for chunk in chunks {
            let logits = runner.logits(&reference.tokens[..length], chunk)?;
            steps += length.div_ceil(chunk) as u64;
            let rows = logits.chunks_exact(reference.vocabulary);
            let found: Vec<f32> = rows.flat_map(log_softmax).collect();
            results.push(FixtureResult {
                model: path.clone(),
                length,
                chunk,
                difference: Difference::between(&found, expected),
                allowed_mean: 2.0 * cost,
            });
        }
    }
    let mut plan = model.plan();
    passes::apply(&mut plan, &[])?;
    check_dispatches(&plan, steps, &runner.executable().dispatches()).map_err(|reason| {
        ValidateError::Fixture {
            path: path.clone(),
            reason,
        }
    })?;
    Ok(results)
}

/// Kernels of a GPU by what they do: each op of the plan runs one of its family, once a step. (A linear op may be several
/// dispatches, where its weights are stored in several types.)
const FAMILIES: [(&str, &[&str]); 8] = [
    ("embed", &["embed"]),
    ("rms_norm", &["rms_norm"]),
    ("linear", &["linear"]),
    ("qk_norm", &["head_norm"]),
    ("rope_kv_write", &["rope_kv_write"]),
    ("attention", &["attention_decode", "attention_prefill"]),
    ("gated_act", &["silu_mul"]),
    ("gather", &["gather"]),
];

/// Parts of an op that run behind its kernel, where it was split.
const SECOND_HALVES: [&str; 2] = ["linear_reduce", "attention_reduce"];

fn check_dispatches(
    plan: &Plan,
    steps: u64,
    dispatches: &BTreeMap<&'static str, u64>,
) -> Result<(), String> {
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for node in &plan.nodes {
        let family = match &node.op {
            Op::LmHead(_) => "linear",
            op => op.name(),
        };
        *wanted.entry(family).or_default() += steps;
    }
    let is_second = |name: &str| SECOND_HALVES.iter().any(|half| name.starts_with(half));
    for (family, kernels) in FAMILIES {
        let of_family = |name: &str| kernels.iter().any(|kernel| name.starts_with(kernel));
        let ran: u64 = dispatches
            .iter()
            .filter(|(name, _)| of_family(name) && !is_second(name))
            .map(|(_, count)| count)
            .sum();
        let wanted = wanted.remove(family).unwrap_or(0);
        let is_right = match family {
            "linear" => ran >= wanted,
            _ => ran == wanted,
        };
        if !is_right {
            return Err(format!("{family} ran {ran} times, the plan says {wanted}"));
        }
    }
    if let Some((op, _)) = wanted.first_key_value() {
        return Err(format!("no kernel is known for op {op}"));
    }
    let known = |name: &str| {
        is_second(name)
            || FAMILIES
                .iter()
                .any(|(_, kernels)| kernels.iter().any(|k| name.starts_with(k)))
    };
    match dispatches.keys().find(|name| !known(name)) {
        Some(name) => Err(format!("{name} ran, and no op of the plan names it")),
        None => Ok(()),
    }
}
