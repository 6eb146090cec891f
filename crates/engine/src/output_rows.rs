//! Owns what a step gave for its rows: all logits of a row, only the largest, or the hidden state.

use crate::error::EngineError;
use mettle_plan::StepOutput;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Row<'a> {
    Logits(&'a [f32]),
    Largest { id: u32, logit: f32 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputRows<'a> {
    output: &'a StepOutput<'a>,
    vocabulary: usize,
}

impl<'a> OutputRows<'a> {
    pub fn new(
        output: &'a StepOutput<'a>,
        vocabulary: usize,
    ) -> Result<OutputRows<'a>, EngineError> {
        match *output {
            StepOutput::Logits { width, .. } if width < vocabulary => {
                Err(EngineError::TooFewLogits { width, vocabulary })
            }
            _ => Ok(OutputRows { output, vocabulary }),
        }
    }

    pub fn row(&self, row: usize) -> Result<Row<'a>, EngineError> {
        match *self.output {
            StepOutput::Logits { width, values } => {
                let start = row * width;
                Ok(Row::Logits(&values[start..start + self.vocabulary]))
            }
            StepOutput::TopK { k, ids, logits } => {
                let (id, logit) = (ids[row * k], logits[row * k]);
                match (id as usize) < self.vocabulary {
                    true => Ok(Row::Largest { id, logit }),
                    false => Err(EngineError::OutOfVocabulary {
                        what: "the device's choice",
                        id,
                        last: self.vocabulary - 1,
                    }),
                }
            }
            _ => Err(EngineError::NoLogits),
        }
    }

    pub fn hidden(&self, row: usize) -> Result<&'a [f32], EngineError> {
        match *self.output {
            StepOutput::Hidden { width, values } => Ok(&values[row * width..(row + 1) * width]),
            _ => Err(EngineError::NoHidden),
        }
    }

    pub fn logits(&self, row: usize) -> Result<&'a [f32], EngineError> {
        match self.row(row)? {
            Row::Logits(logits) => Ok(logits),
            Row::Largest { .. } => Err(EngineError::NoLogits),
        }
    }
}
