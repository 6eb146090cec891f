//! Owns `mettle bench kernels`: on a GPU matrix products alone, by shape and type, in bytes and operations a second; on
//! the CPU it hands over to `ops`.

use super::{ops, types};
use crate::args::BenchKernelsArgs;
use crate::commands::settings;
use crate::config::{Device, engine_flags};
use crate::terminal::note;
use anyhow::bail;
use mettle_bench::gpu_linear::{LinearTime, time};
use mettle_cuda::CudaGpu;
use mettle_gpu::Gpu;
use mettle_kernels::select::{
    DENSE_TILES, DeviceProfile, Element, LinearShape, MatrixTiles, QUANTIZED_TILES, Weight,
};
use mettle_metal::MetalGpu;

/// Output and input widths of an 8B Llama: fused gate and up, output projection, down.
const SHAPES: [(u32, u32); 3] = [(28672, 4096), (4096, 4096), (4096, 14336)];
const ROWS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 512, 8192];

pub fn run(args: BenchKernelsArgs) -> anyhow::Result<()> {
    let settings = settings(engine_flags(args.model.as_ref(), &args.engine))?;
    match settings.device {
        Device::Metal => on(MetalGpu::open()?, &args),
        Device::Cuda => on(CudaGpu::open()?, &args),
        Device::Auto => match (MetalGpu::open(), CudaGpu::open()) {
            (Ok(gpu), _) => on(gpu, &args),
            (_, Ok(gpu)) => on(gpu, &args),
            (Err(_), Err(_)) if args.types => types::run(&args, &settings),
            (Err(_), Err(_)) => ops::run(&args, &settings),
        },
        Device::Cpu if args.types => types::run(&args, &settings),
        Device::Cpu => ops::run(&args, &settings),
        Device::Emulator => bail!("the emulator is for tests; its times say nothing"),
    }
}

fn on<G: Gpu>(mut gpu: G, args: &BenchKernelsArgs) -> anyhow::Result<()> {
    note(&format!("device    {}", gpu.describe()));
    let profile = gpu.profile();
    if !args.json {
        println!(
            "{:<40} {:>5} {:>6} {:>6} {:>6} {:>10} {:>8} {:>9}",
            "kernel", "parts", "m", "n", "k", "us", "TB/s", "TFLOP/s"
        );
    }
    for (name, element, weight) in [
        ("bf16", Element::Bf16, Weight::Dense),
        ("f16", Element::F16, Weight::Dense),
        ("q8_0", Element::F16, Weight::Q8_0),
        ("q4_1", Element::F16, Weight::Q4_1),
    ] {
        for (n, k) in SHAPES {
            for m in ROWS {
                let label = format!("linear/{name}/{m}x{n}x{k}");
                if !label.contains(&args.filter) {
                    continue;
                }
                for profile in profiles(&profile, weight, args.all_tiles) {
                    one(&mut gpu, &profile, args, element, weight, (m, n, k))?;
                }
            }
        }
    }
    Ok(())
}

/// The device's own profile, and if asked for one for each tile, with K whole and split.
fn profiles(own: &DeviceProfile, weight: Weight, all: bool) -> Vec<DeviceProfile> {
    let mut profiles = vec![*own];
    let (tiles, is_dense) = match weight {
        Weight::Dense => (DENSE_TILES, true),
        _ => (QUANTIZED_TILES, false),
    };
    for tile in tiles.iter().filter(|_| all) {
        for split in [0, 1, 2, 4] {
            let mut profile = *own;
            let linear = match is_dense {
                true => &mut profile.dense,
                false => &mut profile.quantized,
            };
            linear.small_rows = 0;
            linear.split_groups_per_core = split;
            linear.tiles = MatrixTiles {
                up_to_16: *tile,
                up_to_32: *tile,
                medium: *tile,
                large: *tile,
            };
            profiles.push(profile);
        }
    }
    profiles
}

fn one<G: Gpu>(
    gpu: &mut G,
    profile: &DeviceProfile,
    args: &BenchKernelsArgs,
    element: Element,
    weight: Weight,
    (m, n, k): (u32, u32, u32),
) -> anyhow::Result<()> {
    let shape = LinearShape {
        m,
        n,
        k,
        element,
        weight,
        out: element,
        has_bias: false,
        has_residual: false,
        has_rows: false,
        rows_aligned: true,
        batch_invariant: false,
    };
    let found = time(gpu, profile, &shape)?;
    match args.json {
        true => println!("{}", serde_json::to_string(&found)?),
        false => row(&found),
    }
    Ok(())
}

fn row(found: &LinearTime) {
    println!(
        "{:<40} {:>5} {:>6} {:>6} {:>6} {:>10.1} {:>8.3} {:>9.1}",
        found.kernel,
        found.parts,
        found.m,
        found.n,
        found.k,
        found.seconds * 1e6,
        found.terabytes_a_second(),
        found.teraflops()
    );
}
