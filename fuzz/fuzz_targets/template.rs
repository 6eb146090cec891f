//! Any text as a chat template: compiled and rendered, or refused, within its limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mettle_text::{ChatTemplate, Message, RenderOptions, TemplateSpecials};

fuzz_target!(|source: &str| {
    let specials = TemplateSpecials {
        bos: Some("<s>".to_owned()),
        eos: Some("</s>".to_owned()),
        ..TemplateSpecials::default()
    };
    let Ok(template) = ChatTemplate::new(source, specials) else {
        return;
    };
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", " <s>Hello "),
    ];
    for continued in [false, true] {
        let options = RenderOptions {
            add_generation_prompt: !continued,
            continue_final_message: continued,
            ..RenderOptions::default()
        };
        // Either outcome will do; what counts is that there is one.
        let _ = template.render(&messages, &options);
    }
});
