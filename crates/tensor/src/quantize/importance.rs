//! Owns how much an error in an element counts.

/// All errors count alike: nothing is known of what a weight will be multiplied with.
pub fn of(values: &[f32], weights: &mut [f32]) {
    debug_assert_eq!(values.len(), weights.len());
    weights.fill(1.0);
}
