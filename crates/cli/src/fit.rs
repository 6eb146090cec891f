//! Owns the question whether a model fits this machine, answered before any of its weights are read.

use crate::config::Settings;
use crate::kv_budget::{self, Wanted};
use crate::session::PAGE_TOKENS;
use crate::terminal::bytes;
use anyhow::bail;
use mettle_engine::pager::Footprint;
use mettle_models::Model;
use mettle_plan::{PageLayout, bind, passes};
use mettle_tensor::TensorInfo;

/// What a model needs of the CPU's memory, and what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    pub weights: u64,
    /// For one whole context.
    pub cache: u64,
    pub context: usize,
    /// The context that the KV cache will hold, where the weights fit.
    pub held: usize,
    pub free: u64,
}

impl Fit {
    /// An error where the files do not hold what the model needs.
    pub fn of(model: &Model, settings: &Settings) -> anyhow::Result<Fit> {
        let mut plans = model.plans();
        for plan in &mut plans {
            passes::apply(plan, &settings.disable_pass)?;
        }
        let layout = PageLayout::new(&plans[0].kv_groups, PAGE_TOKENS);
        bind(&plans, &*model.tensors)?;
        let chunk = settings.max_num_batched_tokens;
        let footprint = Footprint::new(layout.clone(), 0, chunk);
        let wanted = Wanted {
            context: model.context_length,
            is_context_fixed: settings.max_model_len.is_some(),
            memory: settings.kv_memory,
            chunk,
            contexts: 1,
        };
        let free = kv_budget::free_memory();
        let weights = weight_bytes(model.tensors.tensors());
        let pages = footprint.pages_at_most(model.context_length, model.context_length);
        let held = match check_weights(weights, free) {
            Ok(()) => kv_budget::budget(&layout, &wanted, free)?.context,
            Err(_) => 0,
        };
        Ok(Fit {
            weights,
            cache: pages as u64 * layout.page_bytes as u64,
            context: model.context_length,
            held,
            free,
        })
    }

    /// In one line.
    pub fn verdict(&self) -> String {
        match check_weights(self.weights, self.free) {
            Err(error) => format!("cannot run here: {error}"),
            Ok(()) if self.held < self.context => format!(
                "can run here with {} of its {} tokens of context",
                self.held, self.context
            ),
            Ok(()) => format!(
                "can run here with all its {} tokens of context",
                self.context
            ),
        }
    }
}

/// Refuses weights that memory has no room for: the system would swap, or end the program half way.
pub fn check_weights(needed: u64, free: u64) -> anyhow::Result<()> {
    if needed > free {
        bail!(
            "the weights need {}, {} of memory are free",
            bytes(needed),
            bytes(free)
        );
    }
    Ok(())
}

pub fn weight_bytes(tensors: &[TensorInfo]) -> u64 {
    tensors.iter().map(tensor_bytes).sum()
}

pub fn tensor_bytes(tensor: &TensorInfo) -> u64 {
    // A scalar has no dimension to make a row of.
    let bytes = match tensor.shape.is_empty() {
        true => Some(tensor.dtype.block_bytes()),
        false => tensor.dtype.tensor_bytes(&tensor.shape),
    };
    bytes.map_or(0, |bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn fit(weights: u64, held: usize) -> Fit {
        Fit {
            weights,
            cache: 1 << 30,
            context: 4096,
            held,
            free: 8_000_000_000,
        }
    }

    #[test]
    fn the_verdict_has_the_numbers() {
        expect!["can run here with all its 4096 tokens of context"]
            .assert_eq(&fit(4_000_000_000, 4096).verdict());
        expect!["can run here with 512 of its 4096 tokens of context"]
            .assert_eq(&fit(4_000_000_000, 512).verdict());
        expect!["cannot run here: the weights need 15.0 GB, 8.00 GB of memory are free"]
            .assert_eq(&fit(15_000_000_000, 0).verdict());
    }
}
