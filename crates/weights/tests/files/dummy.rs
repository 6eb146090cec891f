//! Random weights are finite, have the spread they should, and depend on seed and name alone.

use mettle_tensor::{DType, TensorInfo, TensorSource, blocks::dequantize};
use mettle_weights::Dummy;

fn info(name: &str, dtype: DType, shape: &[usize]) -> TensorInfo {
    TensorInfo {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

fn values(dummy: &Dummy, index: usize) -> Vec<f32> {
    let view = dummy.view(index);
    let mut values = vec![f32::NAN; view.shape.iter().product()];
    dequantize(view.dtype, &view.bytes, &mut values).unwrap();
    values
}

fn mean_and_deviation(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|v| *v as f64).sum::<f64>() / count;
    let square = values
        .iter()
        .map(|v| (*v as f64 - mean).powi(2))
        .sum::<f64>();
    (mean, (square / count).sqrt())
}

#[test]
fn every_type_has_the_spread_of_its_width() {
    for dtype in DType::ALL {
        for columns in [256, 4096] {
            let dummy = Dummy::new(vec![info("w", dtype, &[64, columns])], 1).unwrap();
            let (mean, deviation) = mean_and_deviation(&values(&dummy, 0));
            let wanted = 1.0 / (columns as f64).sqrt();
            let off = (deviation / wanted - 1.0).abs();
            assert!(
                off < 0.05,
                "{dtype} {columns}: {deviation} instead of {wanted}"
            );
            assert!(mean.abs() < wanted * 0.05, "{dtype} {columns}: mean {mean}");
        }
    }
}

#[test]
fn vectors_are_near_one() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let dummy = Dummy::new(vec![info("norm", dtype, &[576])], 1).unwrap();
        assert!(values(&dummy, 0).iter().all(|v| (v - 1.0).abs() < 0.1));
    }
}

#[test]
fn no_block_holds_the_integer_that_kernels_cannot_negate() {
    let dummy = Dummy::new(vec![info("w", DType::Q8_0, &[64, 256])], 1).unwrap();
    for block in dummy.view(0).bytes.chunks_exact(34) {
        assert!(block[2..].iter().all(|q| *q as i8 != -128));
    }
}

#[test]
fn bytes_depend_on_seed_and_name_only() {
    // Large enough to be made in several pieces by several threads.
    let a = info("a", DType::F16, &[1500, 1024]);
    let b = info("b", DType::F16, &[1500, 1024]);
    let one = Dummy::new(vec![a.clone(), b.clone()], 7).unwrap();
    let other = Dummy::new(vec![b.clone(), a.clone()], 7).unwrap();
    assert!(one.view(0).bytes == other.view(1).bytes);
    assert!(one.view(1).bytes == other.view(0).bytes);
    assert!(one.view(0).bytes != one.view(1).bytes);
    let reseeded = Dummy::new(vec![a], 8).unwrap();
    assert!(one.view(0).bytes != reseeded.view(0).bytes);
    assert_eq!(one.find("b"), Some(1));
    let view = one.view(0);
    let (first, second) = view.bytes.split_at(1 << 20);
    assert!(second[..1 << 19] != first[..1 << 19]);
}

#[test]
fn tensors_of_any_size_lie_apart() {
    let sizes = [1, 0, 33, 64, 5];
    let infos = sizes.map(|n| info(&format!("w{n}"), DType::F32, &[n]));
    let dummy = Dummy::new(infos.to_vec(), 3).unwrap();
    for (index, one) in infos.into_iter().enumerate() {
        let alone = Dummy::new(vec![one], 3).unwrap();
        assert_eq!(values(&dummy, index), values(&alone, 0));
        assert_eq!(values(&dummy, index).len(), sizes[index]);
        assert!(dummy.view(index).bytes.as_ptr().addr().is_multiple_of(64));
    }
}

#[test]
fn more_than_the_machine_has_is_an_error() {
    // The largest vocabulary and width that a config may name.
    let table = info("table", DType::F32, &[1 << 28, 1 << 20]);
    let error = Dummy::new(vec![table], 1).err().unwrap().to_string();
    let start = "random weights need 1125899.9 GB of memory: ";
    assert!(error.starts_with(start), "{error}");
}
