//! Owns the check of a host's bindings against a kernel's parsed signature.

use crate::error::BindingError;
use crate::signature::{Signature, Source};

/// What a host puts at one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound<'a> {
    /// Memory of `element`s (`half`, `uint`), known to the kernel as `name`.
    Buffer {
        name: &'a str,
        element: &'a str,
        writes: bool,
    },
    /// The params struct, by value.
    Params { bytes: usize },
    /// Threadgroup memory.
    Threadgroup,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    pub index: u32,
    pub bound: Bound<'a>,
}

/// Every parameter bound once, under its own name, with its element type, access and size, and nothing else.
pub fn check_bindings(signature: &Signature, bindings: &[Binding]) -> Result<(), BindingError> {
    let kernel = || signature.host_name.clone();
    for (at, binding) in bindings.iter().enumerate() {
        let space = space_of(&binding.bound);
        let same = |b: &&Binding| b.index == binding.index && space_of(&b.bound) == space;
        if bindings[..at].iter().any(|b| same(&b)) {
            return Err(BindingError::Twice {
                kernel: kernel(),
                space,
                index: binding.index,
            });
        }
    }
    for parameter in &signature.parameters {
        let (space, index) = match parameter.source {
            Source::Buffer(index) => ("buffer", index),
            Source::Threadgroup(index) => ("threadgroup", index),
            Source::Position(_) => continue,
        };
        let binding = bindings
            .iter()
            .find(|b| b.index == index && space_of(&b.bound) == space)
            .ok_or_else(|| BindingError::Missing {
                kernel: kernel(),
                space,
                index,
                name: parameter.name.clone(),
            })?;
        match (&binding.bound, &parameter.params) {
            (Bound::Threadgroup, _) => {}
            (Bound::Params { bytes }, Some(layout)) => {
                if *bytes != layout.bytes {
                    return Err(BindingError::ParamsSize {
                        kernel: kernel(),
                        index,
                        name: parameter.name.clone(),
                        wanted: layout.bytes,
                        given: *bytes,
                    });
                }
            }
            (Bound::Buffer { name, .. }, Some(_)) => {
                return Err(BindingError::Swapped {
                    kernel: kernel(),
                    index,
                    wanted: "params".to_string(),
                    given: name.to_string(),
                });
            }
            (Bound::Params { .. }, None) => {
                return Err(BindingError::Swapped {
                    kernel: kernel(),
                    index,
                    wanted: parameter.name.clone(),
                    given: "params".to_string(),
                });
            }
            (
                Bound::Buffer {
                    name,
                    element,
                    writes,
                },
                None,
            ) => {
                if *name != parameter.name {
                    return Err(BindingError::Swapped {
                        kernel: kernel(),
                        index,
                        wanted: parameter.name.clone(),
                        given: name.to_string(),
                    });
                }
                if *element != parameter.element {
                    return Err(BindingError::Element {
                        kernel: kernel(),
                        index,
                        name: parameter.name.clone(),
                        wanted: parameter.element.clone(),
                        given: element.to_string(),
                    });
                }
                if *writes == parameter.is_const {
                    let access = |writes| if writes { "written" } else { "only read" };
                    return Err(BindingError::Access {
                        kernel: kernel(),
                        index,
                        name: parameter.name.clone(),
                        wanted: access(!parameter.is_const),
                        given: access(*writes),
                    });
                }
            }
        }
    }
    let known = |b: &&Binding| {
        signature.parameters.iter().any(|p| match p.source {
            Source::Buffer(index) => index == b.index && space_of(&b.bound) == "buffer",
            Source::Threadgroup(index) => index == b.index && space_of(&b.bound) == "threadgroup",
            Source::Position(_) => false,
        })
    };
    match bindings.iter().find(|b| !known(b)) {
        Some(extra) => Err(BindingError::Extra {
            kernel: kernel(),
            space: space_of(&extra.bound),
            index: extra.index,
        }),
        None => Ok(()),
    }
}

fn space_of(bound: &Bound) -> &'static str {
    match bound {
        Bound::Buffer { .. } | Bound::Params { .. } => "buffer",
        Bound::Threadgroup => "threadgroup",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    const KERNEL: &str = "struct KParams { uint rows; float eps; };
        kernel void k(device const half* x [[buffer(0)]], device const half* weight [[buffer(1)]],
                      device half* out [[buffer(2)]], constant KParams& p [[buffer(3)]],
                      threadgroup float* scratch [[threadgroup(0)]]) {}";

    fn buffer<'a>(index: u32, name: &'a str, element: &'a str, writes: bool) -> Binding<'a> {
        let bound = Bound::Buffer {
            name,
            element,
            writes,
        };
        Binding { index, bound }
    }

    fn good() -> Vec<Binding<'static>> {
        vec![
            buffer(0, "x", "half", false),
            buffer(1, "weight", "half", false),
            buffer(2, "out", "half", true),
            Binding {
                index: 3,
                bound: Bound::Params { bytes: 8 },
            },
            Binding {
                index: 0,
                bound: Bound::Threadgroup,
            },
        ]
    }

    fn check(change: impl FnOnce(&mut Vec<Binding<'static>>)) -> Result<(), String> {
        let interface = parse("k.metal", KERNEL).unwrap();
        let mut bindings = good();
        change(&mut bindings);
        check_bindings(&interface.signatures[0], &bindings).map_err(|e| e.to_string())
    }

    #[test]
    fn the_right_bindings_pass() {
        assert_eq!(check(|_| ()), Ok(()));
    }

    #[test]
    fn each_mistake_is_named() {
        let error = |change: fn(&mut Vec<Binding<'static>>)| check(change).unwrap_err();
        assert_eq!(
            error(|b| {
                b[0].index = 1;
                b[1].index = 0;
            }),
            "k: buffer(0) is `x`, the host binds `weight`"
        );
        assert_eq!(
            error(|b| {
                b.remove(1);
            }),
            "k: buffer(1) `weight` is bound to nothing"
        );
        assert_eq!(
            error(|b| {
                b.pop();
            }),
            "k: threadgroup(0) `scratch` is bound to nothing"
        );
        assert_eq!(
            error(|b| b[3].bound = Bound::Params { bytes: 12 }),
            "k: `p` at buffer(3) has 8 bytes, the host gives 12"
        );
        assert_eq!(
            error(|b| b[0] = buffer(0, "x", "bfloat", false)),
            "k: `x` at buffer(0) holds half, the host binds bfloat"
        );
        assert_eq!(
            error(|b| b[2] = buffer(2, "out", "half", false)),
            "k: `out` at buffer(2) is written, the host binds it as only read"
        );
        assert_eq!(
            error(|b| b.push(buffer(4, "y", "half", false))),
            "k: buffer(4) is bound, but the kernel has no such parameter"
        );
        assert_eq!(
            error(|b| b.push(buffer(0, "x", "half", false))),
            "k: buffer(0) is bound twice"
        );
        assert_eq!(
            error(|b| b[3] = buffer(3, "p", "KParams", false)),
            "k: buffer(3) is `params`, the host binds `p`"
        );
    }
}
