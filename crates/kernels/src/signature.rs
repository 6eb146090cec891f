//! Owns what a host must know of a kernel: its parameters, as parsed from the source. The parsing is in `parse`.

use crate::params::ParamsLayout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSpace {
    Device,
    Constant,
    Threadgroup,
    /// A value, not a pointer.
    None,
}

/// Where a parameter comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `[[buffer(n)]]`
    Buffer(u32),
    /// `[[threadgroup(n)]]`
    Threadgroup(u32),
    /// `[[thread_position_in_grid]]` and its like.
    Position(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub space: AddressSpace,
    pub is_const: bool,
    pub is_reference: bool,
    /// What is pointed to, or the value's type, template arguments filled in.
    pub element: String,
    pub source: Source,
    /// The struct behind a `constant` reference.
    pub params: Option<ParamsLayout>,
}

/// One entry point under the name a host looks it up by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub host_name: String,
    pub function: String,
    /// `half, 64` of `kernel<half, 64>`; empty for a kernel that is no template.
    pub template_arguments: String,
    pub file: String,
    pub line: usize,
    pub parameters: Vec<Parameter>,
}

impl Signature {
    /// The layout of the kernel's params struct and its buffer index, if it has one.
    pub fn params(&self) -> Option<(u32, &ParamsLayout)> {
        self.parameters.iter().find_map(|p| match p.source {
            Source::Buffer(index) => Some((index, p.params.as_ref()?)),
            _ => None,
        })
    }

    /// Buffer parameters with their index, in the order of the index.
    pub fn buffers(&self) -> Vec<(u32, &Parameter)> {
        let index = |p: &Parameter| match p.source {
            Source::Buffer(index) => Some(index),
            _ => None,
        };
        let mut buffers: Vec<_> = self
            .parameters
            .iter()
            .filter_map(|p| Some((index(p)?, p)))
            .collect();
        buffers.sort_by_key(|(index, _)| *index);
        buffers
    }

    pub fn uses_threadgroup_memory(&self) -> bool {
        let is_threadgroup = |p: &Parameter| matches!(p.source, Source::Threadgroup(_));
        self.parameters.iter().any(is_threadgroup)
    }
}

/// `constant bool name [[function_constant(index)]];`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionConstant {
    pub name: String,
    pub type_name: String,
    pub index: u32,
}

/// All that one `.metal` file offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub signatures: Vec<Signature>,
    pub constants: Vec<FunctionConstant>,
}
