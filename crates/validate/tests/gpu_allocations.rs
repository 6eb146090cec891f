//! The GPU runner's decode step allocates nothing: counted on a device that does nothing.

mod common;

use common::{fixtures, open};
use mettle_gpu::{Argument, Encoder, Finished, Gpu, GpuBackend, GpuError, Precision};
use mettle_kernels::select::{DeviceProfile, Launch};
use mettle_plan::{
    Backend, BlockId, ContextLen, Executable, InputToken, KvElement, OutputKind, PageLayout,
    PrepareOptions, Sizes, StepInput, TokenRow, passes,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Nothing;

impl Gpu for Nothing {
    type Buffer = ();
    type Pipeline = ();
    type Encoder<'a> = &'a mut Nothing;
    type Submitted = ();

    fn name(&self) -> &'static str {
        "nothing"
    }
    fn describe(&self) -> String {
        "nothing".into()
    }
    fn profile(&self) -> DeviceProfile {
        DeviceProfile::apple(10)
    }
    fn memory_budget(&self) -> usize {
        usize::MAX
    }
    fn allocate(&mut self, _: &'static str, _: usize) -> Result<(), GpuError> {
        Ok(())
    }
    fn write(&mut self, _: &(), _: usize, _: &[u8]) -> Result<(), GpuError> {
        Ok(())
    }
    fn pipeline(&mut self, _: &Launch) -> Result<(), GpuError> {
        Ok(())
    }
    fn encoder(&mut self) -> Result<&mut Nothing, GpuError> {
        Ok(self)
    }
    fn wait(&mut self, (): ()) -> Result<Finished, GpuError> {
        Ok(Finished { gpu_seconds: 0.0 })
    }
    fn read(&mut self, _: &Finished, _: &(), _: usize, out: &mut [u8]) -> Result<(), GpuError> {
        out.fill(0);
        Ok(())
    }
}

impl Encoder for &mut Nothing {
    type Buffer = ();
    type Pipeline = ();
    type Submitted = ();

    fn upload(&mut self, _: &(), _: usize, _: &[u8]) {}
    fn copy(&mut self, _: (&(), usize), _: (&(), usize), _: usize) {}
    fn dispatch(&mut self, _: &(), _: &Launch, _: &[Argument<'_, ()>]) {}
    fn barrier(&mut self) {}
    fn submit(self) -> Result<(), GpuError> {
        Ok(())
    }
}

fn decode(executable: &mut dyn Executable, step: &mut StepInput, position: u32) {
    step.clear();
    step.output = OutputKind::TopK(4);
    for sequence in 0..3 {
        step.push_sequence(std::iter::once(InputToken::Host(sequence)), position);
        let pages = [BlockId(sequence), BlockId(sequence + 3)];
        step.tables[0].push(0, ContextLen(position + 1), &pages);
        step.logit_rows.push(TokenRow(sequence));
    }
    let ticket = executable.submit(step).unwrap();
    executable.wait(ticket).unwrap();
}

#[test]
fn a_decode_step_allocates_nothing() {
    let model = open(&fixtures().join("models/qwen3/model.gguf"), KvElement::F16);
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let options = PrepareOptions {
        bounds: Sizes::bounds(16, 3),
        kv_pages: 6,
        page_layout: PageLayout::new(&plan.kv_groups, 32),
        taps: Vec::new(),
    };
    let backend = GpuBackend::new(|| Ok(Nothing), Precision::default()).unwrap();
    let mut executable = backend.prepare(&[plan], &*model.tensors, options).unwrap();
    let mut step = StepInput::new(1);
    for position in 0..4 {
        decode(&mut *executable, &mut step, position);
    }
    let before = ALLOCATIONS.with(Cell::get);
    for position in 4..60 {
        decode(&mut *executable, &mut step, position);
    }
    let allocated = ALLOCATIONS.with(Cell::get) - before;
    assert_eq!(allocated, 0);
}
