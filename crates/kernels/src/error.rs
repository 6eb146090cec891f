//! Owns what can be wrong with a kernel source or with the way a host binds it.

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KernelError {
    #[error("{file}:{line}: {message}")]
    Source {
        file: String,
        line: usize,
        message: String,
    },
    #[error("{includer} includes {name}, which is not one of the shared headers")]
    UnknownInclude { includer: String, name: String },
    #[error(transparent)]
    Binding(#[from] BindingError),
}

/// How a host's bindings differ from the kernel's signature.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BindingError {
    #[error("{kernel}: {space}({index}) `{name}` is bound to nothing")]
    Missing {
        kernel: String,
        space: &'static str,
        index: u32,
        name: String,
    },
    #[error("{kernel}: {space}({index}) is bound, but the kernel has no such parameter")]
    Extra {
        kernel: String,
        space: &'static str,
        index: u32,
    },
    #[error("{kernel}: {space}({index}) is bound twice")]
    Twice {
        kernel: String,
        space: &'static str,
        index: u32,
    },
    #[error("{kernel}: buffer({index}) is `{wanted}`, the host binds `{given}`")]
    Swapped {
        kernel: String,
        index: u32,
        wanted: String,
        given: String,
    },
    #[error("{kernel}: `{name}` at buffer({index}) holds {wanted}, the host binds {given}")]
    Element {
        kernel: String,
        index: u32,
        name: String,
        wanted: String,
        given: String,
    },
    #[error("{kernel}: `{name}` at buffer({index}) is {wanted}, the host binds it as {given}")]
    Access {
        kernel: String,
        index: u32,
        name: String,
        wanted: &'static str,
        given: &'static str,
    },
    #[error("{kernel}: `{name}` at buffer({index}) has {wanted} bytes, the host gives {given}")]
    ParamsSize {
        kernel: String,
        index: u32,
        name: String,
        wanted: usize,
        given: usize,
    },
    #[error("{kernel} has no parameter `{name}` in its params")]
    UnknownField { kernel: String, name: String },
    #[error("{kernel}: the params field `{name}` is a {wanted}, the host gives a {given}")]
    FieldType {
        kernel: String,
        name: String,
        wanted: &'static str,
        given: &'static str,
    },
    #[error("{kernel}: the params field `{name}` is given no value")]
    FieldMissing { kernel: String, name: String },
}
