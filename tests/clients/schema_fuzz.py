"""schemathesis over our own /openapi.json: requests made from the description, answers held against it."""

import json
import os
import subprocess
import sys
import tempfile

from serving import MODEL, Server, given

# A chat without max_tokens goes on to the end of the context: a short one keeps thousands of requests quick.
CONTEXT = "128"

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
]

MESSAGE = {
    "type": "object",
    "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": {"type": "string", "maxLength": 20}},
    "required": ["role", "content"],
}


def narrowed(document):
    """The same description with the model's name and the form of messages in it, so that most requests get past the first checks."""
    for name, schema in document["components"]["schemas"].items():
        fields = schema.get("properties", {})
        if name.endswith("Request"):
            if "model" in fields:
                fields["model"] = {"enum": [MODEL]}
            if "messages" in fields:
                fields["messages"] = {"type": "array", "items": MESSAGE, "minItems": 1, "maxItems": 3}
            if "input" in fields:
                fields["input"] = {"type": "string", "maxLength": 20}
    return document


def run(server, location, examples):
    # One worker: Python's parser, with which hypothesis describes its strategies, fails at random when threads of 3.11 use it together.
    tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    command = [
        tool,
        "run",
        location,
        "--url",
        server.url,
        "--max-examples",
        str(examples),
        "--seed",
        "1",
        "--workers",
        "1",
        "--request-timeout",
        "60",
        "--checks",
        ",".join(CHECKS),
        "--warnings",
        "off",
    ]
    return subprocess.call(command)


def main():
    examples = 200 if given().full else 10
    with Server("--max-model-len", CONTEXT) as server, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        before = server.metrics()["request_success_total"]
        json.dump(narrowed(server.get("/openapi.json")[1]), file)
        file.flush()
        status = run(server, f"{server.url}/openapi.json", examples) or run(server, file.name, 2 * examples)
        answered = server.idle()["request_success_total"] - before
        print(f"{answered:.0f} answers were made")
        assert answered >= 3 * examples, "hardly any request got as far as the model"
        code, answer = server.post(
            "/v1/completions", {"prompt": "The capital of Germany is", "max_tokens": 4, "temperature": 0}
        )
        assert (code, "Berlin" in answer["choices"][0]["text"]) == (200, True), answer
    sys.exit(status)


if __name__ == "__main__":
    main()
