//! Owns the question how many cores the GPU has, which Metal does not answer: the system's registry of drivers does.

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::AnyObject;
use objc2_foundation::{NSNumber, NSString};
use std::ffi::c_void;

type Port = u32;

#[link(name = "IOKit", kind = "framework")]
unsafe extern "C" {
    fn IORegistryEntryIDMatching(entry: u64) -> *mut c_void;
    fn IOServiceGetMatchingService(main_port: Port, matching: *mut c_void) -> Port;
    fn IORegistryEntryCreateCFProperty(
        entry: Port,
        key: *const NSString,
        allocator: *const c_void,
        options: u32,
    ) -> *mut AnyObject;
    fn IOObjectRelease(object: Port) -> i32;
}

/// The cores of the GPU with this registry id, if its driver says; an undocumented property, so that it may be missing.
pub fn gpu_cores(registry_id: u64) -> Option<u32> {
    let key = NSString::from_str("gpu-core-count");
    // SAFETY: plain calls with the types of IOKit's headers. A null dictionary is checked for; IOServiceGetMatchingService
    // consumes it, and 0 stands for the default port. The entry is released once. The property comes with a reference of
    // ours or is null; NSString and CFString are the same objects.
    let property = unsafe {
        let matching = IORegistryEntryIDMatching(registry_id);
        if matching.is_null() {
            return None;
        }
        let entry = IOServiceGetMatchingService(0, matching);
        if entry == 0 {
            return None;
        }
        let property =
            IORegistryEntryCreateCFProperty(entry, Retained::as_ptr(&key), std::ptr::null(), 0);
        IOObjectRelease(entry);
        Retained::from_raw(property)
    }?;
    autoreleasepool(|_| {
        let number = property.downcast::<NSNumber>().ok()?;
        Some(number.as_u32()).filter(|&cores| cores > 0)
    })
}
