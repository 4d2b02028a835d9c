#!/usr/bin/env python3
"""Writes the manual page mgplan(1) from the command's own help: manual_page.py MGPLAN OUTPUT

troff source with the macros of man(7): overview, each command with its options, exit codes, environment, examples. It holds no
date, so one build always gives one page.
"""
import json
import subprocess
import sys
from pathlib import Path

DESCRIPTION = (
    "Which tensor, context, expert, data, pipeline and virtual pipeline layout should a model use on N GPUs, will it fit, how fast will it "
    "be, and why? mgplan enumerates and ranks the layouts, predicts memory and time of each, and runs a plan with the measurement beside "
    "the prediction. Results go to standard output, progress and warnings to standard error.")
EXIT_STATUS = {
    "0": "done",
    "2": "bad usage or input; each problem is one message that names field, value, rule and way out",
    "3": "no layout fits",
    "4": "the run failed",
    "5": "a prediction missed its tolerance",
    "6": "check --gate cannot say: a flag that decides it is not computed, or a fact such as the vocabulary is missing",
}
ENVIRONMENT = {
    "MGPLAN_CUDA_MODULE": "file of the CUDA module, where it lies neither beside the program nor in ../lib of it",
    "MGPLAN_JOB_FOLDER": "folder in which the processes of one job find each other if each has a GPU; needed on several machines, which must "
                         "all see it, unless mgplan launch starts the job",
}
EXAMPLES = {
    "The best layouts of Llama 3 8B on 16 GPUs:": "mgplan --world 16 --model llama3-8b",
    "Save the second best, and look at each rank's memory:":
        "mgplan --world 16 --model llama3-8b --save-plan plan.json --pick 2\nmgplan simulate plan.json --per-rank",
    "Train it for some steps on this machine, compared with the prediction:": "mgplan run plan.json --steps 3",
    "Judge a Megatron-LM command:": "mgplan check --megatron-args train.sh --world 64",
}


def escaped(text):
    """Text as troff prints it, in plain ASCII."""
    lines = ("\\&" + line if line.startswith((".", "'")) else line for line in text.replace("\\", "\\e").replace("-", "\\-").split("\n"))
    return "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in "\n".join(lines))


def quoted(text):
    """A macro's argument in double quotes."""
    return '"' + escaped(text).replace('"', "\\(dq") + '"'


def entries(meanings):
    return "".join(f".TP\n\\fB{escaped(name)}\\fR\n{escaped(meaning)}\n" for name, meaning in meanings.items())


def option_text(option):
    value = f" \\fI{escaped(option['value'])}\\fR" if option["value"] else ""
    preset = f" (default: {escaped(option['preset'])})" if option["preset"] else ""
    return f".TP\n\\fB\\-\\-{escaped(option['name'])}\\fR{value}\n{escaped(option['help'])}{preset}\n"


def command_text(name, summary, command):
    text = f".SS {quoted('mgplan ' + name)}\n{escaped(summary)}.\n.PP\n.nf\n"
    text += "".join(f"\\fBmgplan\\fR {escaped(line)}\n" for line in command["usage"]) + ".fi\n"
    text += "".join(f".PP\n{escaped(paragraph)}\n" for paragraph in command["purpose"].split("\n") if paragraph)
    text += "".join(f".TP\n\\fI{escaped(word['name'])}\\fR\n{escaped(word['help'])}\n" for word in command["positionals"])
    for group in command["groups"]:
        text += f".PP\n{escaped(group['title'])}:\n" + "".join(map(option_text, group["options"]))
    return text


def manual_page(version, commands):
    """The page of (name, summary, description as of --help --format json) for each command."""
    return (f'.TH MGPLAN 1 "" {quoted(version)} "User Commands"\n'
            ".SH NAME\nmgplan \\- plan, predict and run layouts for training large language models\n"
            ".SH SYNOPSIS\n.nf\n\\fBmgplan\\fR \\fB\\-\\-world\\fR \\fIN\\fR \\fB\\-\\-model\\fR \\fICFG\\fR [\\fIoptions\\fR]\n"
            "\\fBmgplan\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.fi\n"
            f".SH DESCRIPTION\n{escaped(DESCRIPTION)}\n"
            f".SH COMMANDS\n{''.join(command_text(*command) for command in commands)}"
            f".SH EXIT STATUS\n{entries(EXIT_STATUS)}.SH ENVIRONMENT\n{entries(ENVIRONMENT)}.SH EXAMPLES\n"
            + "".join(f".TP\n{escaped(what)}\n.nf\n{escaped(line)}\n.fi\n" for what, line in EXAMPLES.items()))


def described(program):
    """Yields what manual_page() takes, in the order of the command's overview."""
    def said(*words):
        return subprocess.run([program, *words], capture_output=True, check=True).stdout.decode()

    for line in said("--help").partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines():
        name, summary = line.split(None, 1)
        yield name, summary, json.loads(said(name, "--help", "--format", "json"))


def main():
    program, output = sys.argv[1:]
    version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout.decode().strip()
    Path(output).write_text(manual_page(version, described(program)), encoding="ascii")


if __name__ == "__main__":
    main()
