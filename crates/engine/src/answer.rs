//! Owns the text of a request: pieces that never split a character and never show a part of a stop string.

use crate::event::{Event, FinishReason, Finished, StopCause, Timings, TokenLogprobs, Usage};
use crate::stop_finder::StopFinder;
use crate::stream::RequestStream;
use mettle_text::{Detokenizer, StopOutcome, StopStrings, Tokenizer};
use std::sync::Arc;

/// How tokens become text.
#[derive(Clone, Debug, Default)]
pub struct AnswerOptions {
    pub stop: Arc<StopStrings>,
    /// The text includes the stop string, or the stop token, that ended it.
    pub include_stop: bool,
    pub skip_special: bool,
    /// A stop string counts if a token after this many completes it, wherever it started.
    pub min_tokens: usize,
}

/// The text of an answer as it comes, and the tokens behind it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Which of the request's `n` choices.
    pub choice: usize,
    /// May be empty: a token inside a character, or text that may become a stop string.
    pub text: String,
    /// The token that led to this piece; `None` for what was held back to the end.
    pub token: Option<u32>,
    pub logprobs: Option<TokenLogprobs>,
}

/// What an answer gives when it is read event by event.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerEvent {
    Piece(Piece),
    /// No piece of this choice is left; `end_of` says how it ended.
    End {
        choice: usize,
    },
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerEnd {
    pub reason: FinishReason,
    /// Completion counts the tokens up to the stop.
    pub usage: Usage,
    pub timings: Timings,
    /// All tokens of the answer, the one that completed a stop string or ended it included.
    pub tokens: Vec<u32>,
    /// The prompt's vector, where the request asked for pooling.
    pub pooled: Option<Vec<f32>>,
}

/// Reads a request's stream as text: `next_piece` until it gives `None`, then `end`. For a request with several choices
/// pieces say whose they are; `next_event` also tells when one of them ends.
pub struct Answer {
    stream: RequestStream,
    options: AnswerOptions,
    choices: Vec<ChoiceText>,
    prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// A choice that has ended and whose last piece was given already.
    ended: Option<usize>,
}

/// The text of one choice.
struct ChoiceText {
    detokenizer: Option<Detokenizer>,
    finder: Option<StopFinder>,
    tokens: Vec<u32>,
    matched: Option<String>,
    end: Option<AnswerEnd>,
}

impl Answer {
    pub fn new(stream: RequestStream, tokenizer: Arc<Tokenizer>, options: AnswerOptions) -> Answer {
        let detokenizer = match stream.starts_anew() {
            true => Detokenizer::of_whole_text,
            false => Detokenizer::new,
        };
        let choice = |_| ChoiceText {
            detokenizer: Some(detokenizer(tokenizer.clone(), options.skip_special)),
            finder: StopFinder::new(&options),
            tokens: Vec::new(),
            matched: None,
            end: None,
        };
        Answer {
            choices: (0..stream.choices()).map(choice).collect(),
            stream,
            options,
            prompt_logprobs: None,
            ended: None,
        }
    }

    /// The next piece, waiting for it; `None` once all choices have ended. Not for use inside async code.
    pub fn next_piece(&mut self) -> Option<Piece> {
        loop {
            if let AnswerEvent::Piece(piece) = self.next_event()? {
                return Some(piece);
            }
        }
    }

    /// The next piece; `None` once all choices have ended.
    pub async fn next_piece_async(&mut self) -> Option<Piece> {
        loop {
            if let AnswerEvent::Piece(piece) = self.next_event_async().await? {
                return Some(piece);
            }
        }
    }

    /// The next piece or end of a choice, waiting for it; `None` after the last one's end. Not for use inside async
    /// code.
    pub fn next_event(&mut self) -> Option<AnswerEvent> {
        loop {
            if let Some(choice) = self.ended.take() {
                return Some(AnswerEvent::End { choice });
            }
            let event = self.stream.recv()?;
            if let Some(event) = self.take(event) {
                return Some(event);
            }
        }
    }

    /// The next piece or end of a choice; `None` after the last one's end.
    pub async fn next_event_async(&mut self) -> Option<AnswerEvent> {
        loop {
            if let Some(choice) = self.ended.take() {
                return Some(AnswerEvent::End { choice });
            }
            let event = self.stream.recv_async().await?;
            if let Some(event) = self.take(event) {
                return Some(event);
            }
        }
    }

    /// Asks the engine to end all choices; the pieces already made still come.
    pub fn abort(&self) {
        self.stream.abort();
    }

    /// One entry per prompt token, where the request asked for them; there before the first piece.
    pub fn prompt_logprobs(&self) -> Option<&[Option<TokenLogprobs>]> {
        self.prompt_logprobs.as_deref()
    }

    /// How it ended, by its first choice; `None` while pieces of that may come.
    pub fn end(&self) -> Option<&AnswerEnd> {
        self.end_of(0)
    }

    /// How a choice ended; `None` while pieces of it may come.
    pub fn end_of(&self, choice: usize) -> Option<&AnswerEnd> {
        self.choices[choice].end.as_ref()
    }

    /// Reads to the end: the whole text of the first choice.
    pub fn text(mut self) -> (String, AnswerEnd) {
        let mut text = String::new();
        while let Some(piece) = self.next_piece() {
            if piece.choice == 0 {
                text.push_str(&piece.text);
            }
        }
        let end = self.choices.swap_remove(0).end;
        (text, end.expect("no piece is left"))
    }

    fn take(&mut self, event: Event) -> Option<AnswerEvent> {
        match event {
            Event::PromptLogprobs(scored) => {
                self.prompt_logprobs = Some(scored);
                None
            }
            // Tokens made while the engine had not heard of the stop string are not part of the answer.
            Event::Token { choice, .. } if self.choices[choice].matched.is_some() => None,
            Event::Token {
                choice,
                id,
                logprobs,
                is_stop,
            } => {
                let text = self.choices[choice].push(id, is_stop, &self.options);
                if self.choices[choice].matched.is_some() {
                    self.stream.abort_choice(choice);
                }
                Some(AnswerEvent::Piece(Piece {
                    choice,
                    text,
                    token: Some(id),
                    logprobs,
                }))
            }
            Event::Finished(finished) => {
                let choice = finished.choice;
                let text = self.choices[choice].finish(finished, &self.options);
                if text.is_empty() {
                    return Some(AnswerEvent::End { choice });
                }
                self.ended = Some(choice);
                Some(AnswerEvent::Piece(Piece {
                    choice,
                    text,
                    ..Piece::default()
                }))
            }
        }
    }
}

impl ChoiceText {
    /// What can be shown after one more token.
    fn push(&mut self, id: u32, is_stop: bool, options: &AnswerOptions) -> String {
        self.tokens.push(id);
        if is_stop && !options.include_stop {
            return String::new();
        }
        let detokenizer = self.detokenizer.as_mut().expect("the answer goes on");
        let text = detokenizer.push(id).to_owned();
        self.filter(text, options)
    }

    /// What of the next text can be shown; notes a stop string.
    fn filter(&mut self, text: String, options: &AnswerOptions) -> String {
        let Some(finder) = self.finder.as_mut() else {
            return text;
        };
        match finder.push(&text, self.tokens.len() > options.min_tokens) {
            StopOutcome::Text(text) => text,
            StopOutcome::Stopped { text, stop } => {
                self.matched = options.stop.get(stop).map(str::to_owned);
                text
            }
        }
    }

    /// What was held back is shown now, unless a stop string has ended the text.
    fn finish(&mut self, finished: Finished, options: &AnswerOptions) -> String {
        let mut text = String::new();
        if self.matched.is_none() {
            let rest = self.detokenizer.take().map(Detokenizer::finish);
            text = self.filter(rest.unwrap_or_default(), options);
            if let Some(finder) = self.finder.take() {
                text.push_str(&finder.finish());
            }
        }
        self.end = Some(AnswerEnd {
            reason: match self.matched.take() {
                Some(stop) => FinishReason::Stop {
                    by: StopCause::StopString(stop),
                },
                None => finished.reason,
            },
            usage: Usage {
                completion: self.tokens.len(),
                ..finished.usage
            },
            timings: finished.timings,
            tokens: std::mem::take(&mut self.tokens),
            pooled: finished.pooled,
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Bell;
    use crate::job::AbortFlags;
    use crate::tape::{TapeWriter, tape};
    use mettle_text::GgufVocab;

    /// Bytes are spelled as byte-level vocabularies do; 6 and 7 are the halves of an é, 8 is special.
    const TOKENS: [&str; 9] = ["a", "b", "c", "Ġ", "STOP", "ST", "Ã", "©", "<end>"];

    fn tokenizer() -> Arc<Tokenizer> {
        let mut token_types = vec![1; TOKENS.len()];
        token_types[8] = 3;
        let vocab = GgufVocab {
            model: "gpt2".to_owned(),
            pre: Some("gpt-2".to_owned()),
            tokens: TOKENS.map(str::to_owned).to_vec(),
            token_types,
            ..GgufVocab::default()
        };
        Arc::new(Tokenizer::from_gguf(vocab).unwrap())
    }

    struct Source {
        events: TapeWriter,
        abort: Arc<AbortFlags>,
    }

    impl Source {
        fn token(&self, id: u32, is_stop: bool) {
            self.events.write_token(0, id, None, is_stop);
        }

        fn end(&self, reason: FinishReason, completion: usize) {
            let usage = Usage {
                prompt: 3,
                completion,
                cached: 1,
            };
            let timings = Timings::default();
            let finished = Finished {
                choice: 0,
                reason,
                usage,
                timings,
                pooled: None,
            };
            self.events.write(Event::Finished(finished));
        }
    }

    fn options(stops: &[&str]) -> AnswerOptions {
        AnswerOptions {
            stop: Arc::new(StopStrings::new(stops.iter().copied()).unwrap()),
            skip_special: true,
            ..AnswerOptions::default()
        }
    }

    fn start(options: AnswerOptions) -> (Source, Answer) {
        let (events, receiver) = tape(50, None, &Bell::start()).unwrap();
        let abort = Arc::new(AbortFlags::new(1));
        let stream = RequestStream::new(receiver, abort.clone(), 3, false, 1);
        let answer = Answer::new(stream, tokenizer(), options);
        (Source { events, abort }, answer)
    }

    #[test]
    fn choices_have_texts_and_stops_of_their_own() {
        let (events, receiver) = tape(50, None, &Bell::start()).unwrap();
        let abort = Arc::new(AbortFlags::new(2));
        let stream = RequestStream::new(receiver, abort.clone(), 3, false, 2);
        let mut answer = Answer::new(stream, tokenizer(), options(&["bc"]));
        // The first choice is "abc" and stops; the second is "ab" and is cut off, with "b" held back.
        for (choice, id) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 0)] {
            events.write_token(choice, id, None, false);
        }
        for (choice, reason) in [(0, FinishReason::Abort), (1, FinishReason::Length)] {
            let finished = Finished {
                choice,
                reason,
                usage: Usage::default(),
                timings: Timings::default(),
                pooled: None,
            };
            events.write(Event::Finished(finished));
        }
        let mut texts = [String::new(), String::new()];
        let mut ends = Vec::new();
        while let Some(event) = answer.next_event() {
            match event {
                AnswerEvent::Piece(piece) => texts[piece.choice].push_str(&piece.text),
                AnswerEvent::End { choice } => ends.push(choice),
            }
        }
        assert_eq!((texts, ends), (["a".into(), "ab".into()], vec![0, 1]));
        assert!(abort.is_set(0) && !abort.is_set(1));
        let by = StopCause::StopString("bc".to_owned());
        assert_eq!(answer.end().unwrap().reason, FinishReason::Stop { by });
        let second = answer.end_of(1).unwrap();
        assert_eq!(second.reason, FinishReason::Length);
        assert_eq!(second.tokens, [0, 1]);
    }

    /// The pieces and the end of an answer made of these tokens that ran to its limit.
    fn answer(options: AnswerOptions, tokens: &[u32]) -> (Vec<String>, AnswerEnd, bool) {
        let (source, mut answer) = start(options);
        tokens.iter().for_each(|id| source.token(*id, false));
        source.end(FinishReason::Length, tokens.len());
        let pieces = std::iter::from_fn(|| answer.next_piece()).map(|p| p.text);
        let pieces = pieces.collect();
        let end = answer.end().unwrap().clone();
        (pieces, end, source.abort.is_set(0))
    }

    #[test]
    fn a_character_is_never_split() {
        let (pieces, end, _) = answer(options(&[]), &[0, 6, 7, 1, 6]);
        assert_eq!(pieces, ["a", "", "é", "b", "", "\u{fffd}"]);
        assert_eq!(end.reason, FinishReason::Length);
        assert_eq!(end.tokens, [0, 6, 7, 1, 6]);
        let usage = (end.usage.prompt, end.usage.completion, end.usage.cached);
        assert_eq!(usage, (3, 5, 1));
    }

    #[test]
    fn a_stop_string_ends_the_answer_and_aborts_the_request() {
        let stop = |text: &str| FinishReason::Stop {
            by: StopCause::StopString(text.to_owned()),
        };
        // "a", "b", "c" in three tokens; what comes after it is not part of the answer.
        let (pieces, end, aborted) = answer(options(&["bc", "zz"]), &[0, 1, 2, 0, 0]);
        assert_eq!(pieces.concat(), "a");
        assert_eq!((end.reason, end.tokens), (stop("bc"), vec![0, 1, 2]));
        assert_eq!(
            (end.usage.completion, end.usage.cached, aborted),
            (3, 1, true)
        );

        let included = AnswerOptions {
            include_stop: true,
            ..options(&["bc"])
        };
        let (pieces, end, _) = answer(included, &[0, 1, 2, 0]);
        assert_eq!(
            (pieces.concat(), end.reason),
            ("abc".to_owned(), stop("bc"))
        );

        // In the middle of a token.
        let (pieces, end, _) = answer(options(&["TO"]), &[0, 4, 0]);
        assert_eq!((pieces.concat(), end.reason), ("aS".to_owned(), stop("TO")));
    }

    #[test]
    fn text_that_only_looked_like_a_stop_string_is_shown_later() {
        let (pieces, end, aborted) = answer(options(&["STOP"]), &[0, 5, 0, 5]);
        assert_eq!(pieces, ["a", "", "STa", "", "ST"]);
        assert_eq!((end.reason, aborted), (FinishReason::Length, false));
    }

    #[test]
    fn stop_strings_wait_for_the_least_number_of_tokens() {
        let patient = AnswerOptions {
            min_tokens: 2,
            ..options(&["b"])
        };
        let (pieces, end, _) = answer(patient, &[0, 1, 0, 1, 0]);
        assert_eq!(pieces.concat(), "aba");
        assert_eq!(end.tokens, [0, 1, 0, 1]);

        // One that starts in the first tokens and is complete after them counts, and none of it was shown.
        let patient = AnswerOptions {
            min_tokens: 1,
            ..options(&["ab"])
        };
        let (pieces, end, aborted) = answer(patient, &[0, 1, 2]);
        assert_eq!((pieces.concat().as_str(), aborted), ("", true));
        assert_eq!(end.tokens, [0, 1]);

        // Text held back in the first tokens is shown at the end.
        let patient = AnswerOptions {
            min_tokens: 9,
            ..options(&["ab"])
        };
        assert_eq!(answer(patient, &[0, 1, 0]).0.concat(), "aba");
    }

    #[test]
    fn a_stop_token_is_counted_but_not_shown() {
        for (include_stop, shown) in [(false, "a"), (true, "ab")] {
            let (source, answer) = start(AnswerOptions {
                include_stop,
                ..options(&[])
            });
            source.token(0, false);
            source.token(1, true);
            let by = StopCause::StopId(1);
            source.end(FinishReason::Stop { by: by.clone() }, 2);
            let (text, end) = answer.text();
            assert_eq!((text.as_str(), end.usage.completion), (shown, 2));
            assert_eq!(end.reason, FinishReason::Stop { by });
        }
    }

    #[test]
    fn special_tokens_are_shown_only_when_asked_for() {
        assert_eq!(answer(options(&[]), &[0, 8, 1]).0.concat(), "ab");
        let shown = AnswerOptions {
            skip_special: false,
            ..options(&[])
        };
        assert_eq!(answer(shown, &[0, 8, 1]).0.concat(), "a<end>b");
    }

    #[test]
    fn a_stream_cut_off_by_a_dead_engine_still_ends() {
        let (source, answer) = start(options(&[]));
        source.token(0, false);
        drop(source);
        let (text, end) = answer.text();
        assert_eq!((text.as_str(), end.usage.completion), ("a", 1));
        assert!(matches!(end.reason, FinishReason::Error(_)));
    }
}
