"""The official openai client, unmodified, against a real server: what it sends is understood, what it reads is right."""

import asyncio
import math
import unittest

import openai

import openai_asking as asking
import serving
from openai_asking import QUESTION, STORY, chat, contents, counts, gathered, streamed
from serving import MODEL, Server


def setUpModule():
    asking.start()


class Models(unittest.TestCase):
    def test_the_model_is_listed_and_found(self):
        self.assertEqual([model.id for model in asking.client.models.list()], [MODEL])
        self.assertEqual(asking.client.models.retrieve(MODEL).id, MODEL)


class Chat(unittest.TestCase):
    def test_a_question_is_answered(self):
        answer = chat()
        self.assertIn("Berlin", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.model, MODEL)
        prompt, completion, total = counts(answer.usage)
        self.assertEqual(total, prompt + completion)

    def test_a_stream_says_what_the_whole_answer_says(self):
        for more in [
            {},
            {"temperature": 1.2, "seed": 5},
            {"max_tokens": 5},
            {"temperature": 0.9, "top_p": 0.8, "seed": 11, "n": 3},
        ]:
            with self.subTest(more):
                whole = chat(STORY, **more)
                parts, usage = streamed(STORY, **more)
                self.assertEqual(parts, contents(whole))
                self.assertEqual(counts(usage), counts(whole.usage))

    def test_a_stream_begins_with_the_role_and_comes_in_pieces(self):
        chunks = list(chat(STORY, stream=True, max_tokens=12))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertGreater(len([c for c in chunks if c.choices[0].delta.content]), 5)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")

    def test_n_answers_differ_and_are_counted_together(self):
        answer = chat(STORY, n=4, temperature=1.5, seed=3, max_tokens=16)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertGreater(len({choice.message.content for choice in answer.choices}), 1)
        self.assertEqual(answer.usage.completion_tokens, 64)

    def test_a_seed_gives_the_same_answer_again_and_another_seed_another(self):
        text = lambda seed: chat(STORY, temperature=1.3, seed=seed).choices[0].message.content  # noqa: E731
        self.assertEqual(text(1), text(1))
        self.assertNotEqual(text(1), text(2))

    def test_stop_strings_end_the_answer_before_them(self):
        whole = chat(STORY, max_tokens=40).choices[0].message.content
        word = whole.split()[8]
        for stop in [word, [word, "never said"]]:
            answer = chat(STORY, max_tokens=40, stop=stop)
            self.assertEqual(answer.choices[0].message.content, whole[: whole.index(word)])
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            self.assertEqual(streamed(STORY, max_tokens=40, stop=stop)[0], contents(answer))

    def test_log_probabilities_belong_to_the_text(self):
        answer = chat(STORY, logprobs=True, top_logprobs=3, max_tokens=12).choices[0]
        tokens = answer.logprobs.content
        self.assertEqual(len(tokens), 12)
        self.assertEqual(b"".join(bytes(token.bytes) for token in tokens).decode(), answer.message.content)
        for token in tokens:
            # Greedy: the token taken is the likeliest.
            self.assertEqual(token.token, token.top_logprobs[0].token)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob)
            values = [other.logprob for other in token.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(len(values), 3)
            self.assertLessEqual(sum(map(math.exp, values)), 1 + 1e-5)
        parts = [
            token
            for chunk in chat(STORY, logprobs=True, top_logprobs=3, max_tokens=12, stream=True)
            for choice in chunk.choices
            if choice.logprobs
            for token in choice.logprobs.content
        ]
        self.assertEqual(parts, tokens)

    def test_a_biased_token_is_always_taken(self):
        _, answer = asking.server.post("/tokenize", {"prompt": " tea", "add_special_tokens": False})
        (tea,) = answer["tokens"]
        answer = chat(logit_bias={str(tea): 100}, max_tokens=3)
        self.assertEqual(answer.choices[0].message.content.strip(), "tea tea tea")

    def test_parts_of_a_message_are_its_text(self):
        turns = [
            {"role": "system", "content": "You are terse."},
            {"role": "user", "content": "My name is Ada."},
            {"role": "assistant", "content": "Hello Ada."},
            {"role": "user", "content": "What is my name?"},
        ]
        in_parts = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in turns]
        whole, parts = chat(turns), chat(in_parts)
        self.assertEqual(contents(parts), contents(whole))
        self.assertEqual(parts.usage.prompt_tokens, whole.usage.prompt_tokens)
        # Every turn reaches the model.
        counted = [chat(turns[:length], max_tokens=1).usage.prompt_tokens for length in (2, 3, 4)]
        self.assertEqual(counted, sorted(set(counted)))


class Completions(unittest.TestCase):
    PROMPT = "The capital of Germany is"

    def complete(self, prompt=PROMPT, **more):
        return asking.client.completions.create(
            model=MODEL, prompt=prompt, **{"max_tokens": 8, "temperature": 0, **more}
        )

    def test_text_goes_on(self):
        answer = self.complete()
        self.assertIn("Berlin", answer.choices[0].text)
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 8))
        text = "".join(chunk.choices[0].text for chunk in self.complete(stream=True))
        self.assertEqual(text, answer.choices[0].text)

    def test_sixteen_tokens_where_no_number_is_given(self):
        answer = asking.client.completions.create(model=MODEL, prompt="Once upon a time", temperature=0)
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_echo_repeats_the_prompt_with_its_log_probabilities(self):
        answer = self.complete(echo=True, logprobs=2, max_tokens=4)
        choice = answer.choices[0]
        self.assertTrue(choice.text.startswith(self.PROMPT))
        tokens = choice.logprobs.tokens
        self.assertEqual("".join(tokens), choice.text)
        self.assertEqual(len(tokens), answer.usage.total_tokens)
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in choice.logprobs.token_logprobs[1:]))
        self.assertEqual(choice.logprobs.text_offset, [len("".join(tokens[:i])) for i in range(len(tokens))])
        self.assertTrue(all(len(top) >= 2 for top in choice.logprobs.top_logprobs[1:]))
        only = self.complete(echo=True, logprobs=2, max_tokens=0).choices[0]
        self.assertEqual(only.text, self.PROMPT)
        count = len(only.logprobs.token_logprobs)
        self.assertEqual(only.logprobs.token_logprobs, choice.logprobs.token_logprobs[:count])

    def test_several_prompts_and_token_ids(self):
        ids = asking.server.post("/tokenize", {"prompt": self.PROMPT})[1]["tokens"]
        alone = self.complete().choices[0].text
        answer = self.complete([self.PROMPT, "Once upon a time", self.PROMPT])
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertEqual([answer.choices[0].text, answer.choices[2].text], [alone, alone])
        self.assertEqual(self.complete(ids).choices[0].text, alone)
        self.assertEqual([choice.text for choice in self.complete([ids, ids]).choices], [alone, alone])


class Embeddings(unittest.TestCase):
    TEXTS = ["The cat sits on the mat.", "A cat is sitting on a mat.", "Quarterly revenue rose by nine per cent."]

    def test_vectors_of_length_one_whatever_the_encoding(self):
        # The client asks for base64 by itself where no format is named, and decodes it.
        as_base64 = asking.client.embeddings.create(model=MODEL, input=self.TEXTS)
        as_floats = asking.client.embeddings.create(model=MODEL, input=self.TEXTS, encoding_format="float")
        self.assertEqual([item.index for item in as_floats.data], [0, 1, 2])
        for text, a, b in zip(self.TEXTS, as_base64.data, as_floats.data, strict=True):
            self.assertAlmostEqual(sum(x * x for x in b.embedding), 1, places=4)
            self.assertLess(max(abs(x - y) for x, y in zip(a.embedding, b.embedding, strict=True)), 1e-6)
            alone = asking.client.embeddings.create(model=MODEL, input=text, encoding_format="float")
            self.assertEqual(alone.data[0].embedding, b.embedding)
        self.assertNotEqual(as_floats.data[0].embedding, as_floats.data[2].embedding)
        self.assertEqual(as_floats.usage.prompt_tokens, as_floats.usage.total_tokens)
        self.assertGreater(as_floats.usage.prompt_tokens, 20)

    def test_token_ids(self):
        ids = asking.server.post("/tokenize", {"prompt": self.TEXTS[0]})[1]["tokens"]
        vectors = [
            asking.client.embeddings.create(model=MODEL, input=given).data[0].embedding
            for given in (self.TEXTS[0], ids, [ids])
        ]
        self.assertEqual(vectors[0], vectors[1])
        self.assertEqual(vectors[0], vectors[2])

    def test_nothing_cannot_be_embedded(self):
        for given in ["", [], [[]]]:
            with self.subTest(given), self.assertRaises(openai.BadRequestError):
                asking.client.embeddings.create(model=MODEL, input=given)


class Errors(unittest.TestCase):
    def test_bad_values_are_bad_requests(self):
        for more in [
            {"temperature": 9},
            {"top_p": 0},
            {"max_tokens": 0},
            {"n": 100_000},
            {"stop": ""},
            {"top_logprobs": 2},
            {"tools": []},
            {"max_tokens": 1_000_000},
            {"logit_bias": {"999999999": 1}},
        ]:
            with self.subTest(more), self.assertRaises(openai.BadRequestError) as caught:
                chat(**more)
            self.assertEqual(caught.exception.status_code, 400)
            self.assertTrue(caught.exception.body["message"])

    def test_a_prompt_beyond_the_context_is_refused_with_the_numbers(self):
        with self.assertRaisesRegex(openai.BadRequestError, "maximum context length is 8192 tokens"):
            chat([{"role": "user", "content": "word " * 9000}])

    def test_an_unknown_model_is_not_found(self):
        for call in [
            lambda: asking.client.chat.completions.create(model="other", messages=QUESTION),
            lambda: asking.client.models.retrieve("other"),
        ]:
            with self.assertRaises(openai.NotFoundError) as caught:
                call()
            self.assertEqual(caught.exception.param, "model")

    def test_a_body_that_is_too_large(self):
        with self.assertRaises(openai.APIStatusError) as caught:
            chat([{"role": "user", "content": "x" * (33 << 20)}])
        self.assertEqual(caught.exception.status_code, 413)

    def test_keys(self):
        with Server("--api-key", "first", "--api-key", "second", "--max-model-len", "64") as guarded:
            with_key = lambda key: openai.OpenAI(base_url=guarded.url + "/v1", api_key=key, max_retries=0)  # noqa: E731
            for key in ["first", "second"]:
                self.assertEqual([model.id for model in with_key(key).models.list()], [MODEL])
            for key in ["firs", "first2", "none"]:
                with self.assertRaises(openai.AuthenticationError):
                    with_key(key).models.list()

    def test_a_full_queue_is_a_rate_limit(self):
        async def flood(url):
            async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
                tasks = [
                    client.chat.completions.create(
                        model=MODEL, messages=STORY, max_tokens=32, extra_body={"ignore_eos": True}
                    )
                    for _ in range(12)
                ]
                return await asyncio.gather(*tasks, return_exceptions=True)

        with Server("--max-num-seqs", "1", "--max-queue", "2", "--max-model-len", "256") as small:
            answers = asyncio.run(flood(small.url))
            refused = [answer for answer in answers if isinstance(answer, Exception)]
            self.assertEqual({type(answer) for answer in refused}, {openai.RateLimitError})
            self.assertTrue(all(answer.response.headers["Retry-After"] for answer in refused))
            self.assertGreaterEqual(len(answers) - len(refused), 1)
            # A client that may try again gets through.
            patient = openai.OpenAI(base_url=small.url + "/v1", api_key="none", max_retries=5)
            self.assertTrue(patient.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4).choices)


class Concurrency(unittest.TestCase):
    def test_24_at_once_get_what_each_gets_alone(self):
        requests = [
            {
                "messages": [{"role": "user", "content": f"Tell me about the number {i}." + " Be brief." * (i % 5)}],
                "max_tokens": 5 + i % 4,
                "temperature": [0, 0.8, 1.3][i % 3],
                "seed": i,
                "n": 2 if i % 8 == 0 else 1,
            }
            for i in range(24)
        ]
        alone = [contents(chat(**request)) for request in requests]

        async def one(client, number, request):
            if number % 2:
                return contents(await client.chat.completions.create(model=MODEL, **request))
            stream = await client.chat.completions.create(model=MODEL, stream=True, **request)
            return gathered([chunk async for chunk in stream])[0]

        async def together():
            async with openai.AsyncOpenAI(base_url=asking.server.url + "/v1", api_key="none", max_retries=0) as client:
                return await asyncio.gather(*(one(client, number, request) for number, request in enumerate(requests)))

        self.assertEqual(asyncio.run(together()), alone)


if __name__ == "__main__":
    serving.run_tests()
