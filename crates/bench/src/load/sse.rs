//! Owns server-sent events on the way in: bytes in any pieces, the data of whole events out.

/// An event longer than this is not one that a model's server sends.
const LONGEST_EVENT: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {LONGEST_EVENT} bytes")]
pub struct EventTooLong;

/// Reads a stream of events piece by piece.
#[derive(Debug, Default)]
pub struct EventReader {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Lines of data of the event that has not ended yet.
    data: Option<String>,
    /// The last piece ended in a carriage return: a line feed right after it belongs to it.
    after_return: bool,
    has_begun: bool,
}

impl EventReader {
    /// Takes the next piece and adds the data of the events that end in it. Comments and other fields are left out.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<String>) -> Result<(), EventTooLong> {
        for &byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    self.end_line(events);
                }
                _ => {
                    self.after_return = false;
                    self.line.push(byte);
                }
            }
            let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
            if held > LONGEST_EVENT {
                return Err(EventTooLong);
            }
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<String>) {
        let text = String::from_utf8_lossy(&self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let text = match is_first {
            true => text.strip_prefix('\u{feff}').unwrap_or(&text),
            false => &text,
        };
        if text.is_empty() {
            events.extend(self.data.take());
        } else if let Some(value) = field_value(text, "data") {
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            }
        }
        self.line.clear();
    }
}

fn field_value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?;
    match rest.strip_prefix(':') {
        Some(value) => Some(value.strip_prefix(' ').unwrap_or(value)),
        // A name alone is a field without a value.
        None => rest.is_empty().then_some(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece, &mut events).unwrap();
        }
        events
    }

    #[test]
    fn events_end_at_empty_lines_whatever_the_line_ends() {
        for text in [
            "data: a\n\ndata:b\n\n",
            "data: a\r\n\r\ndata:b\r\n\r\n",
            "data: a\r\rdata:b\r\r",
        ] {
            assert_eq!(read(&[text.as_bytes()]), ["a", "b"], "{text:?}");
        }
    }

    #[test]
    fn comments_names_and_unfinished_events_are_left_out() {
        let text = "\u{feff}: hello\n\nevent: x\ndata: one\ndata\ndata:  two\nid: 3\n\ndatum: no\n\ndata: lost";
        assert_eq!(read(&[text.as_bytes()]), ["one\n\n two"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut reader = EventReader::default();
        let piece = vec![b'x'; 1 << 20];
        let outcome = (0..32).try_for_each(|_| reader.push(&piece, &mut Vec::new()));
        assert_eq!(outcome, Err(EventTooLong));
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_events(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "data: ", "data:", "data", ":", " ", "\n", "\r", "\r\n", "\n\n", "{\"a\":1}", "é", "\u{feff}",
                    "event: x", "[DONE]", "\u{1F600}",
                ]),
                0..40,
            ),
            cuts in prop::collection::vec(0usize..200, 0..12),
        ) {
            let whole = words.concat();
            let bytes = whole.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[bytes]));
        }
    }
}
