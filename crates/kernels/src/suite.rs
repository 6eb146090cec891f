//! Owns the kernel tests against f64 references, as code that a release binary runs on any device.

mod attention;
mod cache;
mod decode;
mod linear;
mod numbers;
mod prefill;
mod product;
mod rope;
mod rows;
mod top_k;

use crate::params::Scalar;
use crate::select::{DeviceProfile, Launch};

/// Host bytes for one buffer index.
#[derive(Debug)]
pub enum SuiteArgument<'a> {
    In(&'a [u8]),
    /// Starts as the given bytes, which are all ones: NaN in every float type.
    Out(&'a mut [u8]),
    InOut(&'a mut [u8]),
    /// The params struct.
    Params(&'a [u8]),
}

/// What runs one dispatch, start to end.
pub trait SuiteDevice {
    fn profile(&self) -> DeviceProfile;

    /// Uploads, runs, and brings back what was written. `arguments` in the order of the kernel's buffer indices.
    fn run(&mut self, launch: &Launch, arguments: &mut [SuiteArgument]) -> Result<(), String>;
}

type Body = Box<dyn Fn(&mut Bench) -> Result<(), String> + Send + Sync>;

/// One named test.
pub struct Case {
    pub name: String,
    body: Body,
}

impl Case {
    fn new(
        name: String,
        body: impl Fn(&mut Bench) -> Result<(), String> + Send + Sync + 'static,
    ) -> Case {
        let body = Box::new(body);
        Case { name, body }
    }

    /// Each dispatch `repeats` times, with results equal to the bit.
    pub fn run(&self, device: &mut dyn SuiteDevice, repeats: u32) -> Result<(), String> {
        let profile = device.profile();
        (self.body)(&mut Bench {
            device,
            profile,
            repeats,
        })
    }
}

/// Every case. Those whose name starts with `once/` run each kernel there is, whatever the device would choose; the
/// others run what `select` chooses for the device.
pub fn cases() -> Vec<Case> {
    let mut cases = rows::cases();
    cases.extend(rope::cases());
    cases.extend(linear::cases());
    cases.extend(attention::cases());
    cases.extend(top_k::cases());
    cases
}

/// After a case.
#[derive(Debug)]
pub struct Progress<'a> {
    pub name: &'a str,
    pub done: usize,
    pub of: usize,
    pub failure: Option<&'a str>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub passed: usize,
    /// Names and messages.
    pub failed: Vec<(String, String)>,
}

/// Runs the cases whose name contains `filter`.
pub fn run(
    device: &mut dyn SuiteDevice,
    filter: &str,
    repeats: u32,
    progress: &mut dyn FnMut(&Progress),
) -> Report {
    let mut cases = cases();
    cases.retain(|case| case.name.contains(filter));
    let mut report = Report::default();
    for (at, case) in cases.iter().enumerate() {
        let result = case.run(device, repeats);
        progress(&Progress {
            name: &case.name,
            done: at + 1,
            of: cases.len(),
            failure: result.as_ref().err().map(String::as_str),
        });
        match result {
            Ok(()) => report.passed += 1,
            Err(message) => report.failed.push((case.name.clone(), message)),
        }
    }
    report
}

/// What a case works with.
struct Bench<'a> {
    device: &'a mut dyn SuiteDevice,
    profile: DeviceProfile,
    repeats: u32,
}

impl Bench<'_> {
    /// Runs a kernel, `params` by field after the other arguments; again for each repeat, with the same result.
    fn dispatch(
        &mut self,
        launch: &Launch,
        arguments: &mut [SuiteArgument],
        params: &[(&str, Scalar)],
    ) -> Result<(), String> {
        let name = &launch.kernel.host_name;
        let (index, layout) = launch.kernel.params().ok_or("a kernel without params")?;
        if index as usize != arguments.len() {
            return Err(format!("{name}: params are at {index}, not last"));
        }
        let params = layout.pack(params).map_err(|error| error.to_string())?;
        let before = written(arguments);
        self.run(launch, arguments, &params)?;
        for repeat in 1..self.repeats {
            let first = written(arguments);
            restore(arguments, &before);
            self.run(launch, arguments, &params)?;
            if written(arguments) != first {
                return Err(format!(
                    "{name}: repeat {repeat} differs from the first run"
                ));
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        launch: &Launch,
        arguments: &mut [SuiteArgument],
        params: &[u8],
    ) -> Result<(), String> {
        let mut all: Vec<SuiteArgument> = arguments
            .iter_mut()
            .map(|argument| match argument {
                SuiteArgument::In(bytes) => SuiteArgument::In(bytes),
                SuiteArgument::Out(bytes) => SuiteArgument::Out(bytes),
                SuiteArgument::InOut(bytes) => SuiteArgument::InOut(bytes),
                SuiteArgument::Params(bytes) => SuiteArgument::Params(bytes),
            })
            .chain([SuiteArgument::Params(params)])
            .collect();
        let result = self.device.run(launch, &mut all);
        result.map_err(|error| format!("{}: {error}", launch.kernel.host_name))
    }
}

fn written(arguments: &[SuiteArgument]) -> Vec<Vec<u8>> {
    let bytes = |argument: &SuiteArgument| match argument {
        SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) => Some(bytes.to_vec()),
        SuiteArgument::In(_) | SuiteArgument::Params(_) => None,
    };
    arguments.iter().filter_map(bytes).collect()
}

fn restore(arguments: &mut [SuiteArgument], before: &[Vec<u8>]) {
    let mutable = arguments.iter_mut().filter_map(|argument| match argument {
        SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) => Some(bytes),
        SuiteArgument::In(_) | SuiteArgument::Params(_) => None,
    });
    for (bytes, before) in mutable.zip(before) {
        bytes.copy_from_slice(before);
    }
}
