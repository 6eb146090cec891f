//! Owns the match between a plan's weights and a source's tensors: exact names, exact shapes, nothing missing, nothing extra.

use crate::plan::Plan;
use crate::weight::WeightId;
use mettle_tensor::TensorSource;
use std::collections::{HashMap, HashSet};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BindError {
    #[error("tensor {tensor} is missing from the model file{}", others(.more))]
    Missing { tensor: String, more: usize },
    #[error("tensor {tensor} has shape {found:?}, the model's config makes it {expected:?}")]
    Shape {
        tensor: String,
        expected: Vec<usize>,
        found: Vec<usize>,
    },
    #[error("the model file has a tensor that this architecture does not use: {tensor}{}", others(.more))]
    Extra { tensor: String, more: usize },
}

fn others(more: &usize) -> String {
    match more {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

/// The source's tensors that make up one weight, top to bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundWeight {
    /// Which of the plans reads it.
    pub plan: usize,
    pub id: WeightId,
    pub tensors: Vec<usize>,
}

/// Finds the tensors of every weight that an op of these plans reads. Together the plans must read all of the source:
/// an encoder and a decoder share a file.
pub fn bind(plans: &[Plan], source: &dyn TensorSource) -> Result<Vec<BoundWeight>, BindError> {
    let by_name: HashMap<&str, usize> = source
        .tensors()
        .iter()
        .enumerate()
        .map(|(i, t)| (t.name.as_str(), i))
        .collect();
    let mut read: HashSet<&str> = HashSet::new();
    let mut missing: Vec<&str> = Vec::new();
    let mut bound = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        for id in plan.used_weights() {
            let mut tensors = Vec::new();
            for part in &plan.weight_of(id).parts {
                read.insert(&part.tensor);
                let Some(&index) = by_name.get(part.tensor.as_str()) else {
                    missing.push(&part.tensor);
                    continue;
                };
                let found = &source.tensors()[index].shape;
                if *found != part.source_shape() {
                    return Err(BindError::Shape {
                        tensor: part.tensor.clone(),
                        expected: part.source_shape().to_vec(),
                        found: found.clone(),
                    });
                }
                tensors.push(index);
            }
            bound.push(BoundWeight {
                plan: number,
                id,
                tensors,
            });
        }
    }
    if let Some(first) = missing.first() {
        return Err(BindError::Missing {
            tensor: (*first).to_owned(),
            more: missing.len() - 1,
        });
    }
    let unread = plans.iter().flat_map(|p| &p.unread);
    let unread: HashSet<&str> = unread.map(String::as_str).collect();
    let extra: Vec<&str> = source
        .tensors()
        .iter()
        .map(|t| t.name.as_str())
        .filter(|name| !read.contains(name) && !unread.contains(name))
        .collect();
    match extra.first() {
        Some(first) => Err(BindError::Extra {
            tensor: (*first).to_owned(),
            more: extra.len() - 1,
        }),
        None => Ok(bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{LmHead, Op};
    use crate::{Dim, KvElement};
    use expect_test::{Expect, expect};
    use mettle_tensor::{DType, TensorInfo, TensorView};

    struct Shapes(Vec<TensorInfo>);

    impl TensorSource for Shapes {
        fn tensors(&self) -> &[TensorInfo] {
            &self.0
        }
        fn view(&self, _: usize) -> TensorView<'_> {
            unreachable!("binding reads no bytes")
        }
    }

    fn check(tensors: &[(&str, &[usize])], expected: Expect) {
        let mut plan = Plan::new("test", DType::F32, KvElement::F32);
        let x = plan.buffer("x", Dim::LogitRows, 4);
        let out = plan.buffer("out", Dim::LogitRows, 8);
        let weight = plan.weight("head", &[8, 4]);
        plan.push(Op::LmHead(LmHead { x, weight, out }));
        plan.unread.push("inv_freq".into());
        let tensors = tensors
            .iter()
            .map(|(name, shape)| TensorInfo {
                name: (*name).to_owned(),
                dtype: DType::F32,
                shape: shape.to_vec(),
            })
            .collect();
        let result = match bind(&[plan], &Shapes(tensors)) {
            Ok(bound) => format!("{:?}", bound[0].tensors),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&result);
    }

    #[test]
    fn names_and_shapes_are_exact() {
        check(&[("inv_freq", &[2]), ("head", &[8, 4])], expect!["[1]"]);
        check(
            &[("head.weight", &[8, 4])],
            expect!["tensor head is missing from the model file"],
        );
        check(
            &[("head", &[4, 8])],
            expect!["tensor head has shape [4, 8], the model's config makes it [8, 4]"],
        );
        check(
            &[("head", &[8, 4]), ("bias", &[8]), ("more", &[8])],
            expect![
                "the model file has a tensor that this architecture does not use: bias (and 1 more)"
            ],
        );
    }
}
