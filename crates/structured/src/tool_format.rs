//! Owns the ways in which model families write tool calls.

/// vLLM's names where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": .., "arguments": ..}</tool_call>`: Hermes, Qwen.
    Hermes,
    /// `{"name": .., "parameters": ..}`, after `<|python_tag|>` or alone: Llama 3.
    Llama3Json,
    /// `[TOOL_CALLS] [{"name": .., "arguments": ..}]`, or `[TOOL_CALLS]name{..}` of later versions.
    Mistral,
    /// `{"name": .., "arguments": ..}` or a list of such, and nothing else.
    GenericJson,
}

/// What a parser looks for and a grammar writes.
pub(crate) struct Syntax {
    /// Opens calls anywhere in the text.
    pub marker: Option<&'static str>,
    /// May follow each call.
    pub closing: Option<&'static str>,
    /// Calls may also stand at the start of the text with no marker. Since other JSON may too, what counts there is
    /// only a call of a known tool with its arguments.
    pub bare: bool,
    /// Calls may stand in a list.
    pub list: bool,
    /// May stand between calls, besides whitespace.
    pub separator: Option<char>,
    /// After the marker, a name may stand before its arguments.
    pub named: bool,
}

impl ToolFormat {
    pub const ALL: [ToolFormat; 4] = [
        ToolFormat::Hermes,
        ToolFormat::Llama3Json,
        ToolFormat::Mistral,
        ToolFormat::GenericJson,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ToolFormat::Hermes => "hermes",
            ToolFormat::Llama3Json => "llama3_json",
            ToolFormat::Mistral => "mistral",
            ToolFormat::GenericJson => "generic_json",
        }
    }

    /// Of `--tool-call-parser`.
    pub fn from_name(name: &str) -> Option<ToolFormat> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// What a chat template's text suggests. `None` where it knows no tools, or a format that is not among ours.
    pub fn detect(template: &str) -> Option<ToolFormat> {
        let has = |text: &str| template.contains(text);
        // Qwen3-Coder and GLM put something else between the same tags.
        if has("<tool_call>") && !has("<function=") && !has("<arg_key>") {
            Some(ToolFormat::Hermes)
        } else if has("<tool_call>") {
            None
        } else if has("[TOOL_CALLS]") {
            Some(ToolFormat::Mistral)
        } else if has("<|python_tag|>") || (has("<|start_header_id|>") && has("tools")) {
            Some(ToolFormat::Llama3Json)
        } else if has("tools") {
            Some(ToolFormat::GenericJson)
        } else {
            None
        }
    }

    pub(crate) fn syntax(self) -> Syntax {
        let plain = Syntax {
            marker: None,
            closing: None,
            bare: false,
            list: false,
            separator: None,
            named: false,
        };
        match self {
            ToolFormat::Hermes => Syntax {
                marker: Some("<tool_call>"),
                closing: Some("</tool_call>"),
                ..plain
            },
            ToolFormat::Llama3Json => Syntax {
                marker: Some("<|python_tag|>"),
                bare: true,
                separator: Some(';'),
                ..plain
            },
            ToolFormat::Mistral => Syntax {
                marker: Some("[TOOL_CALLS]"),
                list: true,
                named: true,
                ..plain
            },
            ToolFormat::GenericJson => Syntax {
                bare: true,
                list: true,
                ..plain
            },
        }
    }
}
