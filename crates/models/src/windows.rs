//! Owns the ways in which `config.json` says how far each layer sees.

use crate::config::Config;
use crate::decoder::MOST_LAYERS;
use crate::error::Result;

/// `layer_types`, where the config has it: `sliding_attention` layers see `window` tokens.
pub fn listed(
    config: &Config,
    layers: usize,
    window: Option<usize>,
) -> Result<Option<Vec<Option<usize>>>> {
    let Some(kinds) = config.texts_or_none("layer_types")? else {
        return Ok(None);
    };
    let windows: Option<Vec<Option<usize>>> = kinds
        .iter()
        .map(|kind| match *kind {
            "sliding_attention" => Some(window),
            "full_attention" => Some(None),
            _ => None,
        })
        .collect();
    if window.is_none() && kinds.contains(&"sliding_attention") {
        return Err(config.missing("sliding_window"));
    }
    match windows.filter(|w| w.len() == layers) {
        Some(windows) => Ok(Some(windows)),
        None => {
            let kinds = format!("{layers} of sliding_attention or full_attention are");
            Err(config.unsupported("layer_types", kinds))
        }
    }
}

/// The Mistral way: a number is every layer's window.
pub fn everywhere(config: &Config, layers: usize) -> Result<Vec<Option<usize>>> {
    Ok(match config.size_or_none("sliding_window")? {
        Some(window) => of_all(layers, window),
        None => Vec::new(),
    })
}

pub fn of_all(layers: usize, window: usize) -> Vec<Option<usize>> {
    vec![Some(window); possible(layers)]
}

/// Absurd numbers of layers are refused later; until then they shall not become memory.
fn possible(layers: usize) -> usize {
    layers.min(MOST_LAYERS + 1)
}

/// The Qwen way: windows are switched on by `use_sliding_window`, from layer `max_window_layers` on; newer configs list
/// every layer's kind.
pub fn switched(config: &Config, layers: usize) -> Result<Vec<Option<usize>>> {
    let window = config.size_or_none("sliding_window")?;
    let first = config.size_or_none("max_window_layers")?;
    if config.flag_or_none("use_sliding_window")? != Some(true) {
        let windows = listed(config, layers, window)?.unwrap_or_default();
        return match windows.iter().all(Option::is_none) {
            true => Ok(Vec::new()),
            false => Err(config.unsupported(
                "layer_types",
                "without use_sliding_window only full_attention is",
            )),
        };
    }
    let window = window.ok_or_else(|| config.missing("sliding_window"))?;
    if let Some(windows) = listed(config, layers, Some(window))? {
        return Ok(windows);
    }
    let first = first.ok_or_else(|| config.missing("max_window_layers"))?;
    let windows = (0..possible(layers)).map(|layer| (layer >= first).then_some(window));
    Ok(windows.collect())
}

/// The Gemma way: one layer in `period` sees everything, the last of each run.
pub fn periodic(
    config: &Config,
    layers: usize,
    window: usize,
    period: usize,
) -> Result<Vec<Option<usize>>> {
    match listed(config, layers, Some(window))? {
        Some(windows) => Ok(windows),
        None => Ok(last_of_each(layers, window, period)),
    }
}

pub fn last_of_each(layers: usize, window: usize, period: usize) -> Vec<Option<usize>> {
    let sees_all = |layer: usize| (layer + 1).is_multiple_of(period);
    let windows = (0..possible(layers)).map(|layer| (!sees_all(layer)).then_some(window));
    windows.collect()
}
