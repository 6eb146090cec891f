//! Owns what has to be rewritten in a template's source before it compiles.

/// Templates may mark the assistant's words with `{% generation %}` for training; for inference
/// the mark means nothing, so it becomes a condition that is always true.
pub(crate) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        // From behind the opening: in `{%}` the same character opens and closes nothing.
        let Some(end) = tag[2..].find("%}") else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(end + 4);
        let inside = tag[2..tag.len() - 2].trim_matches(['-', '+']);
        let replacement = match inside.trim() {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => inside,
        };
        if replacement == inside {
            out.push_str(tag);
        } else {
            out.push_str(&tag.replacen(inside.trim(), replacement, 1));
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::without_generation_tags;

    #[test]
    fn a_tag_too_short_to_close_is_left_to_the_parser() {
        for source in ["{%}", "{%", "{%}}", "a{%}{% generation %}"] {
            assert_eq!(without_generation_tags(source), source);
        }
    }

    #[test]
    fn tags_keep_their_whitespace_control() {
        assert_eq!(
            without_generation_tags(
                "a {%- generation -%} b {%endgeneration+%}{% if generation %}{% endif"
            ),
            "a {%- if true -%} b {%endif+%}{% if generation %}{% endif"
        );
    }
}
