//! Owns what can go wrong on a device.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    #[error("{device} is not available: {why}")]
    NotAvailable { device: &'static str, why: String },
    #[error("{what} needs {bytes} bytes of GPU memory, which the device refused")]
    OutOfMemory { what: &'static str, bytes: usize },
    #[error("kernel {kernel} does not compile for this device: {message}")]
    Compile { kernel: String, message: String },
    /// What a kernel or the driver reported while work was under way; results of that work are lost.
    #[error("the device stopped: {0}")]
    Fault(String),
}
