"""Runs the code of docs/python.md and examples/notebook.ipynb: documents.py [--write]

A page's ```python blocks run in order in one namespace, in a folder that holds the files which it shows ("`NAME`:" and a fenced block);
a ```text block shows what those since the last one printed. A notebook's cells run in order; the value of the last line of a cell is its
result. --write puts today's output in place, else whatever differs is printed.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from conftest import SOURCE

PAGE, NOTEBOOK = SOURCE / "docs/python.md", SOURCE / "examples/notebook.ipynb"
BLOCK = re.compile(r"(?ms)^```(python|text)\n(.*?)^```$")
FILE = re.compile(r"(?ms)^`(?P<name>[\w.-]+)`:\n\n```\w*\n(?P<text>.*?)^```$")
# The job that the page's training script belongs to.
ARGV = ("pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
        "--num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 128 --swiglu "
        "--tensor-model-parallel-size 8 --sequence-parallel --vocab-size 128256 --bf16 --use-distributed-optimizer --normalization RMSNorm "
        "--position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear").split()


@contextlib.contextmanager
def in_a_job():
    """In a folder of its own, with the words and the environment of a job."""
    argv, environment, place = sys.argv, dict(os.environ), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.argv = ARGV
        os.environ["WORLD_SIZE"] = "16"
        try:
            yield Path(folder)
        finally:
            os.chdir(place)
            sys.argv = argv
            os.environ.clear()
            os.environ.update(environment)


def page_as_it_should_be(text):
    """The page with today's output."""
    with in_a_job() as folder:
        for file in FILE.finditer(text):
            (folder / file["name"]).write_text(file["text"])
        namespace, printed = {}, io.StringIO()

        def today(block):
            nonlocal printed
            kind, code = block.groups()
            if kind == "text":
                code, printed = printed.getvalue(), io.StringIO()
            else:
                line = text.count("\n", 0, block.start(2))
                with contextlib.redirect_stdout(printed):
                    exec(compile("\n" * line + code, "docs/python.md", "exec"), namespace)
            return f"```{kind}\n{code}```"

        return BLOCK.sub(today, text)


def run_cell(source, namespace):
    """What a notebook would show below the cell."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, outputs = io.StringIO(), []
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace) if last else None
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": value._repr_html_().splitlines(keepends=True)} | data
        outputs.append({"data": data, "metadata": {}, "output_type": "execute_result"})
    return outputs


def notebook_as_it_should_be(text):
    """The notebook with today's output."""
    notebook = json.loads(text)
    namespace, count = {}, 0
    with in_a_job():
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = run_cell("".join(cell["source"]), namespace)
            for output in cell["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = count
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


DOCUMENTS = {PAGE: page_as_it_should_be, NOTEBOOK: notebook_as_it_should_be}

if __name__ == "__main__":
    for place, today in DOCUMENTS.items():
        shown = place.read_text()
        if today(shown) != shown:
            print(f"{place} shows something else")
            if sys.argv[1:] == ["--write"]:
                place.write_text(today(shown))
