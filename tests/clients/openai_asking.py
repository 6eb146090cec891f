"""Owns the openai client and its server for the drivers that use them, and what every question has in common."""

import unittest

import openai

from serving import MODEL, Server

QUESTION = [{"role": "user", "content": "What is the capital of Germany?"}]
STORY = [{"role": "user", "content": "Tell a story about a fox and a lighthouse."}]


def start():
    """For setUpModule."""
    global server, client
    server = Server()
    unittest.addModuleCleanup(server.close)
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
    print(f"openai {openai.__version__}", flush=True)


def chat(messages=QUESTION, **more):
    return client.chat.completions.create(
        model=MODEL, messages=messages, **{"max_tokens": 24, "temperature": 0, **more}
    )


def gathered(stream):
    """The text, finish reason and usage of each choice of a stream, put together by its reader."""
    texts, reasons, usage = {}, {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return [(texts[i], reasons[i]) for i in sorted(texts)], usage


def streamed(messages=QUESTION, **more):
    return gathered(chat(messages, stream=True, stream_options={"include_usage": True}, **more))


def contents(answer):
    return [(choice.message.content, choice.finish_reason) for choice in answer.choices]


def counts(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
