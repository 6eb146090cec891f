"""The official openai client asks for tools, for answers of a form, and through the Responses API."""

import json
import unittest

import jsonschema
import openai
import pydantic

import openai_asking as asking
import serving
from openai_asking import QUESTION, STORY, chat, contents, streamed
from serving import MODEL

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
CLOCK = {
    "type": "object",
    "properties": {"zone": {"enum": ["UTC", "CET"]}},
    "required": ["zone"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "The weather of a city", "parameters": WEATHER},
    },
    {"type": "function", "function": {"name": "clock", "description": "The time of day", "parameters": CLOCK}},
]


def setUpModule():
    asking.start()


class Tools(unittest.TestCase):
    def calls(self, tool_choice, **more):
        """The calls of an answer, which its stream must repeat."""
        more = {"tools": TOOLS, "tool_choice": tool_choice, "max_tokens": 160, **more}
        answer = chat(QUESTION, **more).choices[0]
        names, arguments, finish = {}, {}, None
        for chunk in chat(QUESTION, stream=True, **more):
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for call in choice.delta.tool_calls or []:
                    self.assertIn(call.type, ("function", None))
                    if call.function.name:
                        self.assertTrue(call.id)
                        names[call.index] = names.get(call.index, "") + call.function.name
                    arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
        whole = [(call.function.name, json.loads(call.function.arguments)) for call in answer.message.tool_calls]
        self.assertEqual([(names[i], json.loads(arguments[i])) for i in sorted(names)], whole)
        self.assertEqual(finish, answer.finish_reason)
        return whole, answer

    def check(self, calls):
        schemas = {"weather": WEATHER, "clock": CLOCK}
        self.assertTrue(calls)
        for name, arguments in calls:
            jsonschema.validate(arguments, schemas[name])

    def test_required(self):
        for more in [{}, {"temperature": 1.0, "seed": 4, "parallel_tool_calls": False}]:
            with self.subTest(more):
                calls, _ = self.calls("required", **more)
                self.check(calls)

    def test_named(self):
        for name in ["weather", "clock"]:
            calls, answer = self.calls({"type": "function", "function": {"name": name}})
            self.check(calls)
            self.assertEqual([called for called, _ in calls], [name])
            self.assertIn(answer.finish_reason, ("stop", "tool_calls"))

    def test_none_and_auto_answer_all_the_same(self):
        self.assertIsNone(chat(tools=TOOLS, tool_choice="none").choices[0].message.tool_calls)
        auto = chat(tools=TOOLS, tool_choice="auto").choices[0].message
        self.assertTrue(auto.content or auto.tool_calls)

    def test_the_result_of_a_call_goes_back(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
        answer = chat(
            [
                *QUESTION,
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
            ],
            tools=TOOLS,
        )
        self.assertTrue(answer.choices[0].message.content)


class City(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: str = pydantic.Field(max_length=12)
    country: str = pydantic.Field(max_length=12)
    capital: bool
    population: int = pydantic.Field(ge=0, le=100_000_000)


class StructuredOutput(unittest.TestCase):
    SCHEMAS = {
        "weather": WEATHER,
        "nested": {
            "type": "object",
            "properties": {
                "people": {
                    "type": "array",
                    "minItems": 2,
                    "maxItems": 2,
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
                            "age": {"type": "integer", "minimum": 0, "maximum": 120},
                        },
                        "required": ["name", "age"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["people"],
            "additionalProperties": False,
        },
        "choice": {"enum": ["yes", "no", 3, None]},
        "either": {
            "anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 9}, "maxItems": 3},
            ]
        },
        "referenced": {
            "$defs": {
                "leaf": {
                    "type": "object",
                    "properties": {"x": {"const": 1}},
                    "required": ["x"],
                    "additionalProperties": False,
                }
            },
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/leaf"}, "b": {"$ref": "#/$defs/leaf"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    }

    def test_answers_follow_their_schema(self):
        for name, schema in self.SCHEMAS.items():
            with self.subTest(name):
                form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}
                greedy = contents(chat(STORY, response_format=form, max_tokens=200))
                self.assertEqual(streamed(STORY, response_format=form, max_tokens=200)[0], greedy)
                drawn = contents(chat(STORY, response_format=form, max_tokens=200, temperature=1.0, seed=9, n=2))
                for text, reason in [*greedy, *drawn]:
                    self.assertEqual(reason, "stop")
                    jsonschema.validate(json.loads(text), schema)

    def test_parse_gives_an_object_of_the_class(self):
        answer = asking.client.chat.completions.parse(
            model=MODEL, messages=QUESTION, response_format=City, max_tokens=120, temperature=0
        )
        self.assertIsInstance(answer.choices[0].message.parsed, City)

    def test_any_json_object(self):
        answer = chat(
            [{"role": "user", "content": "Give a JSON object with one key, a, and value 1."}],
            response_format={"type": "json_object"},
            max_tokens=300,
        )
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)
        else:
            self.assertTrue(answer.choices[0].message.content.lstrip().startswith("{"))

    def test_what_vllm_adds(self):
        more = {"structured_outputs": {"choice": ["north", "south"]}}
        self.assertIn(chat(extra_body=more).choices[0].message.content, ["north", "south"])
        more = {"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2}"}}
        self.assertRegex(chat(extra_body=more).choices[0].message.content, "^[0-9]{3}-[a-f]{2}$")

    def test_what_does_not_compile_is_refused(self):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": 3}}}
        with self.assertRaises(openai.BadRequestError):
            chat(response_format=form)


class Responses(unittest.TestCase):
    def ask(self, question="What is the capital of Germany?", **more):
        return asking.client.responses.create(
            model=MODEL, input=question, **{"max_output_tokens": 24, "temperature": 0, **more}
        )

    def test_a_question_is_answered(self):
        answer = self.ask()
        self.assertEqual(answer.status, "completed")
        self.assertIn("Berlin", answer.output_text)
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)

    def test_instructions_and_turns_are_those_of_a_chat(self):
        turns = [
            {"role": "user", "content": "My name is Ada."},
            {"role": "assistant", "content": "Hello Ada."},
            {"role": "user", "content": "What is my name?"},
        ]
        answer = self.ask(turns, instructions="You are terse.")
        same = chat([{"role": "system", "content": "You are terse."}, *turns])
        self.assertEqual(answer.output_text, same.choices[0].message.content)
        self.assertEqual(answer.usage.input_tokens, same.usage.prompt_tokens)

    def test_an_answer_that_was_cut_says_so(self):
        answer = self.ask("Tell a long story.", max_output_tokens=8)
        self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_a_stream_says_what_the_whole_answer_says(self):
        whole = self.ask()
        events = list(self.ask(stream=True))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        with asking.client.responses.stream(
            model=MODEL, input="What is the capital of Germany?", max_output_tokens=24, temperature=0
        ) as stream:
            stream.until_done()
            self.assertEqual(stream.get_final_response().output_text, whole.output_text)

    def test_tools(self):
        tools = [
            {
                "type": "function",
                "name": "weather",
                "description": "The weather of a city",
                "parameters": WEATHER,
                "strict": True,
            }
        ]
        answer = self.ask(tools=tools, tool_choice="required", max_output_tokens=160)
        (call,) = [item for item in answer.output if item.type == "function_call"]
        self.assertEqual(call.name, "weather")
        jsonschema.validate(json.loads(call.arguments), WEATHER)
        events = list(self.ask(tools=tools, tool_choice="required", max_output_tokens=160, stream=True))
        arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
        self.assertEqual(json.loads(arguments), json.loads(call.arguments))

    def test_parse_gives_an_object_of_the_class(self):
        answer = asking.client.responses.parse(
            model=MODEL, input="What is the capital of Germany?", text_format=City, max_output_tokens=120, temperature=0
        )
        self.assertIsInstance(answer.output_parsed, City)


if __name__ == "__main__":
    serving.run_tests()
