//! Owns the answer where there is no Metal: a device that cannot exist, so that callers need not ask which system they are on.

use crate::NAME;
use mettle_gpu::{Argument, Encoder, Finished, Gpu, GpuError};
use mettle_kernels::select::{DeviceProfile, Launch};

/// The system's GPU. Here there is none.
#[derive(Debug)]
pub enum MetalGpu {}

/// Stands for all that only a device can make.
#[derive(Debug)]
pub enum Nothing {}

impl MetalGpu {
    pub fn open() -> Result<MetalGpu, GpuError> {
        Err(GpuError::NotAvailable {
            device: NAME,
            why: "this is not a Mac".to_owned(),
        })
    }
}

impl Gpu for MetalGpu {
    type Buffer = Nothing;
    type Pipeline = Nothing;
    type Encoder<'a> = Nothing;
    type Submitted = Nothing;

    fn name(&self) -> &'static str {
        match *self {}
    }

    fn describe(&self) -> String {
        match *self {}
    }

    fn profile(&self) -> DeviceProfile {
        match *self {}
    }

    fn memory_budget(&self) -> usize {
        match *self {}
    }

    fn allocate(&mut self, _: &'static str, _: usize) -> Result<Nothing, GpuError> {
        match *self {}
    }

    fn write(&mut self, _: &Nothing, _: usize, _: &[u8]) -> Result<(), GpuError> {
        match *self {}
    }

    fn pipeline(&mut self, _: &Launch) -> Result<Nothing, GpuError> {
        match *self {}
    }

    fn encoder(&mut self) -> Result<Nothing, GpuError> {
        match *self {}
    }

    fn wait(&mut self, _: Nothing) -> Result<Finished, GpuError> {
        match *self {}
    }

    fn read(&mut self, _: &Finished, _: &Nothing, _: usize, _: &mut [u8]) -> Result<(), GpuError> {
        match *self {}
    }
}

impl Encoder for Nothing {
    type Buffer = Nothing;
    type Pipeline = Nothing;
    type Submitted = Nothing;

    fn upload(&mut self, _: &Nothing, _: usize, _: &[u8]) {
        match *self {}
    }

    fn copy(&mut self, _: (&Nothing, usize), _: (&Nothing, usize), _: usize) {
        match *self {}
    }

    fn dispatch(&mut self, _: &Nothing, _: &Launch, _: &[Argument<'_, Nothing>]) {
        match *self {}
    }

    fn barrier(&mut self) {
        match *self {}
    }

    fn submit(self) -> Result<Nothing, GpuError> {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_there_is_no_device() {
        let error = MetalGpu::open().unwrap_err().to_string();
        assert_eq!(error, "metal is not available: this is not a Mac");
    }
}
