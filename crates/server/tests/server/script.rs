//! Owns a model that wants to say a given text, whatever it is asked; a constraint may keep it from that.

use crate::server::{VOCABULARY, layout};
use mettle_plan::{
    BackendError, BlockId, Counts, Executable, MemoryUse, OutputKind, PageLayout, Sizes, StepInput,
    StepOutput, Ticket,
};
use std::sync::Arc;

pub struct Script {
    /// Said one after another, and then the first for ever.
    ids: Vec<u32>,
    /// The position before the answer, once that is known. One answer at a time.
    prompt_end: Option<u32>,
    logits: Vec<f32>,
    bounds: Sizes,
    layout: PageLayout,
}

impl Script {
    pub fn new(ids: Vec<u32>) -> Script {
        Script {
            ids,
            prompt_end: None,
            logits: Vec::new(),
            bounds: Sizes::bounds(512, 1),
            layout: layout(),
        }
    }
}

impl Executable for Script {
    fn bounds(&self) -> &Sizes {
        &self.bounds
    }
    fn page_layout(&self) -> &PageLayout {
        &self.layout
    }
    fn memory(&self) -> MemoryUse {
        MemoryUse::default()
    }
    fn gives(&self, output: OutputKind) -> bool {
        output == OutputKind::Logits
    }
    fn submit(&mut self, step: &StepInput) -> Result<Ticket, BackendError> {
        self.logits.clear();
        for row in &step.logit_rows {
            let position = step.positions[row.0 as usize];
            let place = position - *self.prompt_end.get_or_insert(position);
            let id = self.ids.get(place as usize).unwrap_or(&self.ids[0]);
            let start = self.logits.len();
            self.logits.resize(start + VOCABULARY, 0.0);
            self.logits[start + *id as usize] = 50.0;
        }
        Ok(Ticket(0))
    }
    fn wait(&mut self, _ticket: Ticket) -> Result<StepOutput<'_>, BackendError> {
        Ok(StepOutput::Logits {
            width: VOCABULARY,
            values: &self.logits,
        })
    }
    fn copy_pages(&mut self, _copies: &[(BlockId, BlockId)]) -> Result<(), BackendError> {
        Ok(())
    }
    fn tap(&self, _name: &str) -> Option<&[f32]> {
        None
    }
    fn counts(&self) -> Arc<Counts> {
        Arc::default()
    }
}
