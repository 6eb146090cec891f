//! What loading quantized safetensors costs in memory. Alone in its file: the peak is the whole process's.
#![cfg(target_os = "linux")]

mod common;

use mettle_cpu::CpuBackend;
use mettle_plan::{Backend, KvElement, PageLayout, PrepareOptions, Sizes, passes};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

const HIDDEN: usize = 1024;
const INTERMEDIATE: usize = 4096;
const LAYERS: usize = 4;
const VOCABULARY: usize = 512;
const GROUP: usize = 128;

/// For the program, its activations and the KV pool: 6 MB were measured.
const PROGRAM: u64 = 16 << 20;

fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

/// Name, type, shape.
type Entry = (String, &'static str, Vec<usize>);

/// The tensors of a Llama model in AWQ's format.
fn entries() -> Vec<Entry> {
    let dense = |name: &str, shape: &[usize]| (name.to_owned(), "F16", shape.to_vec());
    let mut entries = vec![
        dense("model.embed_tokens.weight", &[VOCABULARY, HIDDEN]),
        dense("model.norm.weight", &[HIDDEN]),
    ];
    for layer in 0..LAYERS {
        let name = |rest: &str| format!("model.layers.{layer}.{rest}");
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            entries.push(dense(&name(&format!("{norm}.weight")), &[HIDDEN]));
        }
        let attention = ["q_proj", "k_proj", "v_proj", "o_proj"];
        let attention = attention.map(|p| (format!("self_attn.{p}"), HIDDEN, HIDDEN));
        let feed_forward = [
            ("mlp.gate_proj".to_owned(), HIDDEN, INTERMEDIATE),
            ("mlp.up_proj".to_owned(), HIDDEN, INTERMEDIATE),
            ("mlp.down_proj".to_owned(), INTERMEDIATE, HIDDEN),
        ];
        for (projection, inputs, outputs) in attention.into_iter().chain(feed_forward) {
            let part = |kind: &str| name(&format!("{projection}.{kind}"));
            let groups = inputs / GROUP;
            entries.push((part("qweight"), "I32", vec![inputs, outputs / 8]));
            entries.push((part("qzeros"), "I32", vec![groups, outputs / 8]));
            entries.push((part("scales"), "F16", vec![groups, outputs]));
        }
    }
    entries
}

/// Writes piece by piece: what this process holds at once counts.
fn write_model(folder: &Path) {
    let config = json!({
        "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS, "num_attention_heads": 8, "vocab_size": VOCABULARY,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": GROUP},
    });
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut end = 0;
    let mut header = serde_json::Map::new();
    for (name, dtype, shape) in entries() {
        let begin = end;
        end += shape.iter().product::<usize>() * if dtype == "F16" { 2 } else { 4 };
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]});
        header.insert(name, entry);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors")).unwrap());
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let piece = [0x12; 4096];
    while end > 0 {
        let now = end.min(piece.len());
        file.write_all(&piece[..now]).unwrap();
        end -= now;
    }
    file.flush().unwrap();
}

#[test]
fn loading_holds_one_tensor_more_than_the_packed_model() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let model = common::open(folder.path(), KvElement::F16);
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let options = PrepareOptions {
        bounds: Sizes::bounds(16, 1),
        kv_pages: page_layout.sequence_pages(64),
        page_layout,
        taps: Vec::new(),
    };
    let executable = CpuBackend::new(2)
        .prepare(&[plan], &*model.tensors, options)
        .unwrap();
    let (peak, memory) = (peak(), executable.memory());
    let tensors = model.tensors.tensors().iter();
    let sizes = tensors.map(|t| t.dtype.tensor_bytes(&t.shape).unwrap() as u64);
    let (all, largest) = (sizes.clone().sum::<u64>(), sizes.max().unwrap());
    println!("tensors {all}, largest {largest}, peak {peak}, {memory:?}");
    assert!(all > 38 << 20, "too small a model to tell: {all} bytes");
    // The stored tensor, the converted one and the packed model.
    let allowed = all + 2 * largest + PROGRAM;
    assert!(peak < allowed, "peak {peak}, allowed {allowed}");
}
