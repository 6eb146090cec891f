"""The official anthropic client, unmodified, against a real server: messages, streams, tools, counting, errors."""

import json
import typing
import unittest

import anthropic
import jsonschema
import pydantic

import serving
from serving import MODEL, Server

QUESTION = [{"role": "user", "content": "What is the capital of Germany?"}]
STORY = [{"role": "user", "content": "Tell a story about a fox and a lighthouse."}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS = [{"name": "weather", "description": "The weather of a city", "input_schema": WEATHER}]


def setUpModule():
    global server, client
    server = Server()
    unittest.addModuleCleanup(server.close)
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)
    print(f"anthropic {anthropic.__version__}", flush=True)


def asked(messages=QUESTION, **more):
    # This client has no argument for the temperature; its users give it as any other field.
    return {"model": MODEL, "messages": messages, "max_tokens": 24, "extra_body": {"temperature": 0}, **more}


def create(messages=QUESTION, **more):
    return client.messages.create(**asked(messages, **more))


class Messages(unittest.TestCase):
    def test_a_question_is_answered(self):
        answer = create()
        self.assertEqual(
            (answer.type, answer.role, answer.model, answer.stop_reason), ("message", "assistant", MODEL, "end_turn")
        )
        self.assertIn("Berlin", answer.content[0].text)
        self.assertGreater(answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0), 10)
        self.assertGreater(answer.usage.output_tokens, 3)

    def test_parts_of_a_message_are_its_text(self):
        turns = [
            {"role": "user", "content": "My name is Ada."},
            {"role": "assistant", "content": "Hello Ada."},
            {"role": "user", "content": "What is my name?"},
        ]
        in_parts = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in turns]
        whole = create(turns, system="You are terse.")
        parts = create(in_parts, system=[{"type": "text", "text": "You are terse."}])
        self.assertEqual(parts.content, whole.content)

    def test_why_it_ended(self):
        cut = create(STORY, max_tokens=40)
        self.assertEqual((cut.stop_reason, cut.usage.output_tokens), ("max_tokens", 40))
        word = cut.content[0].text.split()[8]
        stopped = create(STORY, max_tokens=40, stop_sequences=[word])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", word))
        self.assertEqual(stopped.content[0].text, cut.content[0].text.split(word)[0])

    def test_a_stream_says_what_the_whole_answer_says(self):
        whole = create(STORY)
        with client.messages.stream(**asked(STORY)) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, whole.content[0].text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_the_events_of_a_stream_come_in_order(self):
        kinds = [event.type for event in client.messages.create(stream=True, **asked())]
        kinds = [kind for kind in kinds if kind != "ping"]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual(set(kinds[2:-3]), {"content_block_delta"})

    def test_tokens_are_counted_as_they_are_used(self):
        answer = create(system="You are terse.")
        counted = client.messages.count_tokens(model=MODEL, messages=QUESTION, system="You are terse.")
        self.assertEqual(counted.input_tokens, answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0))


class Tools(unittest.TestCase):
    def test_a_tool_is_called_in_a_stream_and_out_of_one(self):
        for choice in [{"type": "any"}, {"type": "tool", "name": "weather"}]:
            with self.subTest(choice):
                more = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 160}
                answer = create(**more)
                self.assertEqual(answer.stop_reason, "tool_use")
                calls = [block for block in answer.content if block.type == "tool_use"]
                self.assertTrue(calls)
                for call in calls:
                    self.assertEqual(call.name, "weather")
                    jsonschema.validate(call.input, WEATHER)
                with client.messages.stream(**asked(**more)) as stream:
                    final = stream.get_final_message()
                inputs = [block.input for block in final.content if block.type == "tool_use"]
                self.assertEqual(inputs, [call.input for call in calls])
                self.assertEqual(final.stop_reason, "tool_use")

    def test_the_result_of_a_call_goes_back(self):
        call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Berlin", "unit": "celsius"}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Sunny, 20 degrees."}
        answer = create(
            [
                {"role": "user", "content": "What is the weather in Berlin?"},
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ],
            tools=TOOLS,
        )
        self.assertTrue(answer.content)


class City(pydantic.BaseModel):
    # What this client knows how to send: it strips bounds from the schema and checks them itself.
    name: typing.Literal["Berlin", "Bonn"]
    capital: bool


class StructuredOutput(unittest.TestCase):
    def test_parse_gives_an_object_of_the_class(self):
        answer = client.messages.parse(**asked(max_tokens=60, output_format=City))
        self.assertIsInstance(answer.parsed_output, City)

    def test_a_schema_is_followed_in_a_stream_and_out_of_one(self):
        more = {"output_config": {"format": {"type": "json_schema", "schema": WEATHER}}, "max_tokens": 100}
        answer = create(STORY, **more)
        jsonschema.validate(json.loads(answer.content[0].text), WEATHER)
        with client.messages.stream(**asked(STORY, **more)) as stream:
            self.assertEqual("".join(stream.text_stream), answer.content[0].text)

    def test_what_does_not_compile_is_refused(self):
        for form in [{"type": "json_schema", "schema": {"type": "object", "properties": 3}}, {"type": "other"}]:
            with self.subTest(form), self.assertRaises(anthropic.BadRequestError):
                create(output_config={"format": form})


class Errors(unittest.TestCase):
    def test_bad_values_are_bad_requests(self):
        for more in [
            {"extra_body": {"temperature": 9}},
            {"extra_body": {"top_p": 0}},
            {"max_tokens": 0},
            {"max_tokens": 1_000_000},
            {"messages": []},
            {"tools": [{"input_schema": WEATHER}]},
            {"tool_choice": {"type": "any"}},
        ]:
            with self.subTest(more), self.assertRaises(anthropic.BadRequestError) as caught:
                client.messages.create(**{**asked(), **more})
            self.assertEqual(caught.exception.body["type"], "error")
            self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
            self.assertTrue(caught.exception.body["error"]["message"])

    def test_an_unknown_model_is_not_found(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            create(model="other")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")

    def test_a_wrong_key(self):
        with Server("--api-key", "right", "--max-model-len", "64") as guarded:
            ask = lambda key: anthropic.Anthropic(base_url=guarded.url, api_key=key, max_retries=0).messages.create(
                **asked(max_tokens=2)
            )  # noqa: E731
            self.assertTrue(ask("right").content)
            with self.assertRaises(anthropic.AuthenticationError) as caught:
                ask("wrong")
            self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")


if __name__ == "__main__":
    serving.run_tests()
