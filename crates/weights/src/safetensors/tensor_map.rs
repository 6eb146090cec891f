//! Owns JSON objects whose keys are tensor names: in file order, each name once.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

/// The one key of a header that is no tensor: free-form notes of whoever wrote the file.
const NOTES: &str = "__metadata__";

pub struct TensorMap<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for TensorMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = TensorMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object keyed by tensor names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TensorMap<V>, A::Error> {
        let mut names = HashSet::new();
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("{name:?} occurs twice")));
            }
            if name == NOTES {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map
                .next_value()
                .map_err(|e| A::Error::custom(format!("tensor {name:?}: {e}")))?;
            entries.push((name, value));
        }
        Ok(TensorMap(entries))
    }
}
