//! Owns the tests of the choice of attention kernels.

use super::*;

fn shape(queries: u32, longest_context: u32) -> DecodeShape {
    DecodeShape {
        element: Element::F16,
        queries,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        longest_context,
        tokens_per_page: 32,
        batch_invariant: false,
    }
}

#[test]
fn smaller_heads_use_the_next_kernel() {
    let padded: Vec<_> = [8, 32, 40, 64, 80, 128].map(padded_head_dim).into();
    let expected = [32, 32, 64, 64, 128, 128].map(Some);
    assert_eq!(padded, expected);
    assert_eq!([0, 20, 136, 256].map(padded_head_dim), [None; 4]);
}

#[test]
fn contexts_are_split_until_the_device_is_busy() {
    let device = DeviceProfile::apple(10);
    let parts = |queries, context| {
        attention_decode(&shape(queries, context), &device)
            .unwrap()
            .parts
    };
    assert_eq!(parts(1, 1), 1);
    assert_eq!(parts(1, 256), 1);
    assert_eq!(parts(1, 257), 2);
    assert_eq!(parts(1, 100_000), 10);
    assert_eq!(parts(16, 100_000), 1);
}

#[test]
fn parts_are_whole_pages_and_cover_the_context() {
    let device = DeviceProfile::nvidia(132);
    for context in (1..3000).step_by(37) {
        let choice = attention_decode(&shape(2, context), &device).unwrap();
        assert!(choice.part_tokens.is_multiple_of(32) && choice.part_tokens >= 32);
        assert!(choice.parts * choice.part_tokens >= context);
        assert!((choice.parts - 1) * choice.part_tokens < context);
        assert_eq!(choice.reduce.is_some(), choice.parts > 1);
        assert!(choice.attend.threadgroup_bytes <= 16 << 10);
    }
}

#[test]
fn an_invariant_split_sees_no_batch() {
    let device = DeviceProfile::nvidia(132);
    let part = |queries| {
        let shape = DecodeShape {
            batch_invariant: true,
            ..shape(queries, 4000)
        };
        attention_decode(&shape, &device).unwrap().part_tokens
    };
    assert_eq!(part(1), part(64));
}

#[test]
fn every_attention_kernel_exists() {
    for element in [Element::F16, Element::Bf16] {
        for head_dim in [32, 64, 128] {
            let long = DecodeShape {
                element,
                head_dim,
                ..shape(1, 5000)
            };
            assert!(
                attention_decode(&long, &DeviceProfile::apple(40))
                    .unwrap()
                    .reduce
                    .is_some()
            );
            let prefill = PrefillShape {
                element,
                tiles: 3,
                heads: 9,
                head_dim,
                rows_aligned: true,
            };
            let launch = attention_prefill(&prefill, &DeviceProfile::apple(40)).unwrap();
            assert!(launch.threadgroup_bytes <= 16 << 10);
        }
    }
}
