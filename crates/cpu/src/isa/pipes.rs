//! Owns what a processor's vector pipes can start in a cycle, as far as kernels are chosen by it.

/// Whether two additions of 512 bits start in a cycle beside as many products, as on AMD's Zen 4 and Zen 5: half of their pipes
/// only add. Intel's pipes for 512 bits do both, so that an addition takes a product's place. The processor is asked, which takes
/// long under a hypervisor: once, not in a step.
pub fn adds_beside_products() -> bool {
    super::is_of(b"AuthenticAMD")
}
