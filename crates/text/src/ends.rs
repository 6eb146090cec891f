//! Owns which tokens play a role in every text, and which of them are put around it.

use crate::{TextError, TokenizerConfig};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Roles {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) padding: Option<u32>,
}

/// What is put before and after a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
}

impl Ends {
    pub(crate) fn new(add_bos: bool, add_eos: bool, roles: &Roles) -> Result<Self, TextError> {
        let mut ends = Self::default();
        set_end(&mut ends.prefix, roles.bos, add_bos, "bos")?;
        set_end(&mut ends.suffix, roles.eos, add_eos, "eos")?;
        Ok(ends)
    }

    /// The same after what `tokenizer_config.json` says of BOS and EOS.
    pub(crate) fn configured(
        mut self,
        config: &TokenizerConfig,
        roles: &Roles,
    ) -> Result<Self, TextError> {
        if let Some(add) = config.add_bos_token {
            set_end(&mut self.prefix, roles.bos, add, "bos")?;
        }
        if let Some(add) = config.add_eos_token {
            set_end(&mut self.suffix, roles.eos, add, "eos")?;
        }
        Ok(self)
    }
}

/// Puts `token` at this end of every text, or takes it away.
fn set_end(end: &mut Vec<u32>, token: Option<u32>, add: bool, role: &str) -> Result<(), TextError> {
    match token {
        Some(token) if add && !end.contains(&token) => end.push(token),
        Some(token) if !add => end.retain(|id| *id != token),
        None if add => {
            return Err(TextError::BrokenVocabulary(format!(
                "the file asks to add the {role} token but names none"
            )));
        }
        _ => {}
    }
    Ok(())
}
