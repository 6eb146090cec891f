"""Owns valid bodies for every route, and the ways in which they can be spoilt."""

import copy
import json

from serving import MODEL

MESSAGES = [{"role": "user", "content": "Tell a story about a fox and a lighthouse."}]
TOOL = {
    "type": "function",
    "function": {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}}},
}

# A valid body for each route, with the fields that are worth spoiling.
BODIES = {
    "/v1/chat/completions": [
        {
            "model": MODEL,
            "messages": MESSAGES,
            "max_tokens": 2,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 1,
            "n": 1,
            "stop": ["x"],
            "logprobs": True,
            "top_logprobs": 2,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logit_bias": {"5": 1},
        },
        {
            "messages": MESSAGES,
            "max_completion_tokens": 2,
            "tools": [TOOL],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        },
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                *MESSAGES,
                {"role": "assistant", "content": "Once"},
            ],
            "max_tokens": 2,
            "add_generation_prompt": False,
            "continue_final_message": True,
            "chat_template_kwargs": {"x": 1},
            "min_p": 0.1,
            "top_k": 5,
        },
        {
            "messages": MESSAGES,
            "max_tokens": 4,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "x",
                    "schema": {
                        "type": "object",
                        "properties": {
                            "a": {"type": "integer", "minimum": 0},
                            "b": {"type": "string", "pattern": "^[a-z]{2}$"},
                        },
                        "required": ["a"],
                        "additionalProperties": False,
                    },
                },
            },
        },
    ],
    "/v1/completions": [
        {
            "model": MODEL,
            "prompt": "Once",
            "max_tokens": 2,
            "echo": True,
            "logprobs": 2,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.5,
            "repetition_penalty": 1.1,
            "bad_words": ["bad"],
            "stop_token_ids": [7],
            "min_tokens": 1,
            "priority": 0,
            "cache_salt": "s",
        },
        {
            "prompt": [[1, 2, 3], [4, 5]],
            "max_tokens": 2,
            "allowed_token_ids": [10, 11],
            "ignore_eos": True,
            "prompt_logprobs": 1,
        },
        {"prompt": "Once", "max_tokens": 3, "structured_outputs": {"regex": "[a-z]{2}"}, "truncate_prompt_tokens": 4},
    ],
    "/v1/responses": [
        {
            "model": MODEL,
            "input": [{"role": "user", "content": "Hello"}],
            "max_output_tokens": 2,
            "instructions": "Be brief.",
            "stream": True,
            "text": {"format": {"type": "text"}},
            "tools": [{"type": "function", "name": "x", "parameters": {"type": "object"}}],
            "reasoning": {"effort": "low"},
        }
    ],
    "/v1/messages": [
        {
            "model": MODEL,
            "messages": MESSAGES,
            "max_tokens": 2,
            "system": [{"type": "text", "text": "Be brief."}],
            "stop_sequences": ["x"],
            "tools": [{"name": "x", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "auto"},
            "stream": True,
        }
    ],
    "/v1/messages/count_tokens": [{"model": MODEL, "messages": MESSAGES}],
    "/v1/embeddings": [{"model": MODEL, "input": ["Hello", "there"], "encoding_format": "base64"}],
    "/tokenize": [{"prompt": "Hello", "add_special_tokens": True}, {"messages": MESSAGES, "tools": [TOOL]}],
    "/detokenize": [{"tokens": [1, 2, 3]}],
}

ODD_VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3.5,
    1e308,
    2**31,
    2**63,
    -(2**63),
    2**64,
    10**30,
    "",
    " ",
    "x",
    "\0",
    "\ud800",
    "é" * 50,
    "<|im_end|>",
    "user",
    "required",
    "json_object",
    [],
    {},
    [[]],
    [None],
    [""],
    {"": ""},
    {"type": "function"},
    {"$ref": "#"},
    [[1], "a"],
    "(" * 50,
    "a" * 3000,
]


def spoilt(body, source):
    """Bytes of a body with one to three things wrong in it, or sometimes none."""
    body = copy.deepcopy(body)
    for _ in range(source.randrange(4)):
        places = list(places_in(body))
        holder, key = source.choice(places)
        match source.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                more = ["n", "stream", "echo", "x", "type", "minimum", "pattern", "best_of", "logprobs"]
                holder[source.choice(more)] = copy.deepcopy(source.choice(ODD_VALUES))
            case 2:
                holder[key] = [holder[key]] if source.random() < 0.5 else {"x": holder[key]}
            case _:
                holder[key] = copy.deepcopy(source.choice(ODD_VALUES))
        if not body:
            break
    text = bytearray(json.dumps(body, ensure_ascii=source.random() < 0.5).encode("utf-8", "surrogatepass"))
    if source.random() < 0.15:
        place = source.randrange(len(text))
        match source.randrange(3):
            case 0:
                text[place] = source.randrange(256)
            case 1:
                del text[place:]
            case 2:
                text[place:place] = bytes(source.randrange(256) for _ in range(3))
    return bytes(text)


def places_in(value):
    """Every (holder, key) of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from places_in(inner)
