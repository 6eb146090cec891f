//! Owns reading one tool call's JSON object, character by character.

/// `{"name": .., "arguments": {..}}` with its keys in any order, arguments as an object or as text that holds one,
/// and other keys passed over.
#[derive(Debug, Default)]
pub(crate) struct CallBody {
    at: At,
    key: String,
    /// The JSON string being read, with its quotes.
    string: Literal,
    nest: Nest,
    name: Option<String>,
    /// Arguments that have not been taken yet.
    arguments: String,
    has_arguments: bool,
    started: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Object,
    FirstKey,
    NextKey,
    Key,
    Colon,
    Value,
    Name,
    Arguments,
    ArgumentsText,
    OtherText,
    OtherNest,
    Scalar,
    Comma,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    /// The object is complete and is a call.
    Done,
    /// This character cannot stand here, or the object is complete and no call.
    Broken,
}

impl CallBody {
    /// True from where name and arguments are sure: from then on [`CallBody::take_arguments`] has them.
    pub fn is_started(&self) -> bool {
        self.started
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub fn take_arguments(&mut self) -> String {
        std::mem::take(&mut self.arguments)
    }

    /// `may_lack_arguments`: a name alone is a call too.
    pub fn feed(&mut self, c: char, may_lack_arguments: bool) -> Progress {
        let space = c.is_ascii_whitespace();
        match self.at {
            At::Object | At::FirstKey | At::NextKey | At::Colon | At::Value | At::Comma
                if space => {}
            At::Object if c == '{' => self.at = At::FirstKey,
            At::FirstKey | At::NextKey if c == '"' => self.open_string(At::Key),
            At::FirstKey | At::Comma if c == '}' => return self.close(may_lack_arguments),
            At::Comma if c == ',' => self.at = At::NextKey,
            At::Colon if c == ':' => self.at = At::Value,
            At::Value => return self.value(c),
            At::Key | At::Name | At::ArgumentsText | At::OtherText => return self.text(c),
            At::Arguments => {
                self.arguments.push(c);
                if self.nest.feed(c) {
                    self.at = At::Comma;
                }
            }
            At::OtherNest if self.nest.feed(c) => self.at = At::Comma,
            At::OtherNest => {}
            At::Scalar if space => self.at = At::Comma,
            At::Scalar if c == ',' => self.at = At::NextKey,
            At::Scalar if c == '}' => return self.close(may_lack_arguments),
            At::Scalar if c.is_ascii_alphanumeric() || "+-.".contains(c) => {}
            _ => return Progress::Broken,
        }
        Progress::More
    }

    fn value(&mut self, c: char) -> Progress {
        let is_name = self.key == "name" && self.name.is_none();
        let is_arguments =
            matches!(self.key.as_str(), "arguments" | "parameters") && !self.has_arguments;
        match c {
            '"' if is_name => self.open_string(At::Name),
            '"' if is_arguments => self.open_string(At::ArgumentsText),
            '{' if is_arguments => {
                self.has_arguments = true;
                self.arguments.push(c);
                self.open_nest(At::Arguments);
                self.started = self.name.is_some();
            }
            _ if is_name || is_arguments => return Progress::Broken,
            '"' => self.open_string(At::OtherText),
            '{' | '[' => self.open_nest(At::OtherNest),
            _ if c.is_ascii_alphanumeric() || c == '-' => self.at = At::Scalar,
            _ => return Progress::Broken,
        }
        Progress::More
    }

    fn text(&mut self, c: char) -> Progress {
        if !self.string.feed(c) {
            return Progress::More;
        }
        let Some(text) = self.string.decode() else {
            return Progress::Broken;
        };
        let was = std::mem::replace(&mut self.at, At::Comma);
        match was {
            At::Key => {
                self.key = text;
                self.at = At::Colon;
            }
            At::Name if text.is_empty() => return Progress::Broken,
            At::Name => {
                self.name = Some(text);
                self.started = self.has_arguments;
            }
            At::ArgumentsText => {
                self.arguments = text;
                self.has_arguments = true;
                self.started = self.name.is_some();
            }
            _ => {}
        }
        Progress::More
    }

    fn close(&mut self, may_lack_arguments: bool) -> Progress {
        if self.name.is_some() && !self.has_arguments && may_lack_arguments {
            self.arguments = "{}".to_owned();
            self.started = true;
        }
        match self.started {
            true => Progress::Done,
            false => Progress::Broken,
        }
    }

    fn open_string(&mut self, at: At) {
        self.string = Literal::default();
        self.at = at;
    }

    fn open_nest(&mut self, at: At) {
        self.nest = Nest::default();
        self.at = at;
    }
}

/// A JSON string behind its opening quote.
#[derive(Debug, Default)]
struct Literal {
    inside: String,
    escaped: bool,
}

impl Literal {
    /// True at the closing quote.
    fn feed(&mut self, c: char) -> bool {
        if c == '"' && !self.escaped {
            return true;
        }
        self.escaped = c == '\\' && !self.escaped;
        match c {
            // Not JSON, but models write it and everybody knows what is meant.
            '\n' => self.inside.push_str("\\n"),
            '\t' => self.inside.push_str("\\t"),
            _ => self.inside.push(c),
        }
        false
    }

    fn decode(&self) -> Option<String> {
        serde_json::from_str(&format!("\"{}\"", self.inside)).ok()
    }
}

/// Where an object or list ends, its opening bracket read already.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    deeper: usize,
    in_string: bool,
    escaped: bool,
}

impl Nest {
    /// True at the bracket that closes it.
    pub fn feed(&mut self, c: char) -> bool {
        if self.in_string {
            match c {
                '"' if !self.escaped => self.in_string = false,
                _ => self.escaped = c == '\\' && !self.escaped,
            }
            return false;
        }
        match c {
            '"' => {
                self.in_string = true;
                self.escaped = false;
            }
            '{' | '[' => self.deeper += 1,
            '}' | ']' if self.deeper == 0 => return true,
            '}' | ']' => self.deeper -= 1,
            _ => {}
        }
        false
    }
}
