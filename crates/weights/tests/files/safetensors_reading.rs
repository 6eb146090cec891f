//! What goes into safetensors comes out again, in one file and in shards.

use crate::safetensors_builder::{file, vectors, write_index};
use mettle_tensor::{DType, TensorSource};
use mettle_weights::Safetensors;

#[test]
fn a_single_file_is_read_in_the_order_of_its_bytes() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
        "scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
        "h":{"dtype":"F16","shape":[1],"data_offsets":[16,18]}}   "#;
    let mut bytes = file(header, 18);
    let start = bytes.len() - 18;
    for (i, byte) in bytes[start..].iter_mut().enumerate() {
        *byte = i as u8;
    }
    let opened = Safetensors::from_bytes(bytes, None).unwrap();
    let names: Vec<&str> = opened.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["scalar", "b", "h"]);
    let view = opened.view(opened.find("b").unwrap());
    assert_eq!((view.dtype, view.shape), (DType::BF16, &[2, 3][..]));
    assert_eq!(view.bytes, (4..16).collect::<Vec<u8>>());
    assert_eq!(opened.find("c"), None);
}

#[test]
fn counted_positions_are_no_tensor() {
    let header = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
        "bert.embeddings.position_ids":{"dtype":"I64","shape":[1,2],"data_offsets":[4,20]},
        "z":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}}"#;
    let opened = Safetensors::from_bytes(file(header, 24), None).unwrap();
    let names: Vec<&str> = opened.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "z"]);
    assert_eq!(opened.view(1).bytes.len(), 4);
}

#[test]
fn a_folder_with_one_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, vectors(&["a", "b"])).unwrap();
    for path in [folder.path(), &path] {
        let opened = Safetensors::open(path, None).unwrap();
        assert_eq!(opened.tensors().len(), 2);
        opened.release(1);
        assert_eq!(*opened.view(1).bytes, [2; 16]);
    }
}

#[test]
fn shards_are_read_through_links_too() {
    // The hub's own cache keeps files elsewhere and links to them.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("blob"), vectors(&["a", "b"])).unwrap();
    std::os::unix::fs::symlink("blob", folder.path().join("m-1.safetensors")).unwrap();
    std::fs::write(folder.path().join("m-2.safetensors"), vectors(&["c"])).unwrap();
    let (one, two) = ("m-1.safetensors", "m-2.safetensors");
    write_index(folder.path(), &[("c", two), ("a", one), ("b", one)]);
    let opened = Safetensors::open(folder.path(), None).unwrap();
    let names: Vec<&str> = opened.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(*opened.view(1).bytes, [2; 16]);
    assert_eq!(*opened.view(2).bytes, [1; 16]);
}
