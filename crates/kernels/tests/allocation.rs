//! Owns the proof that choosing kernels does not allocate: it is done for every op of every decode step.

use mettle_kernels::select::{
    self, DecodeShape, DeviceProfile, Element, LinearShape, PrefillShape, Weight,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator; the count is a thread-local number without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are the system's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every choice that a step makes, in both element types, for few rows and many.
fn choose_all(device: &DeviceProfile) -> u32 {
    let mut threads = 0;
    for element in [Element::F16, Element::Bf16] {
        for rows in [1, 2, 7, 16, 40, 500] {
            for weight in [Weight::Dense, Weight::Q8_0, Weight::Q4_1] {
                let shape = LinearShape {
                    m: rows,
                    n: 4096,
                    k: 4096,
                    element,
                    weight,
                    out: element,
                    has_bias: true,
                    has_residual: true,
                    has_rows: false,
                    rows_aligned: true,
                    batch_invariant: false,
                };
                threads += select::linear(&shape, device).unwrap().main.threads;
            }
            let decode = DecodeShape {
                element,
                queries: rows,
                heads: 32,
                kv_heads: 8,
                head_dim: 128,
                longest_context: 5000,
                tokens_per_page: 32,
                batch_invariant: false,
            };
            let decode = select::attention_decode(&decode, device).unwrap();
            let prefill = PrefillShape {
                element,
                tiles: rows,
                heads: 32,
                head_dim: 128,
                rows_aligned: true,
            };
            let prefill = select::attention_prefill(&prefill, device).unwrap();
            threads += decode.attend.threads + prefill.threads;
            threads += select::rms_norm(element, rows, true, true).threads;
            threads += select::elementwise("silu_mul", element, rows, 14336).threads;
            threads += select::rope_kv_write(element, rows, 32, 8, false).threads;
            threads += select::head_norm(element, rows, 32).threads;
            threads += select::top_k(rows, 128_256, 50).unwrap().main.threads;
        }
    }
    threads
}

#[test]
fn choosing_does_not_allocate() {
    let device = DeviceProfile::nvidia(132);
    let first = choose_all(&device);
    let before = ALLOCATIONS.get();
    assert_eq!(choose_all(&device), first);
    assert_eq!(ALLOCATIONS.get(), before);
    // The count counts.
    drop(std::hint::black_box(vec![1_u8]));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}
