#include "reports/job_script.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <fmt/core.h>

#include "plan/text/shell_quoting.hpp"

namespace mgplan::reports {
namespace {

using jobs::Job;
using jobs::Meeting;
using jobs::Via;

/// For comments and job names, in which a newline would begin a command.
std::string one_line(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
    return text;
}

std::string slurm_name(const std::string& id) {
    std::string name = "mgplan-" + id;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
    return name.substr(0, 60);
}

/// Options for sbatch. It interprets names with blanks or %, so its own output is discarded and the script opens its log itself.
std::string slurm_options(const Job& job) {
    std::string text = fmt::format("#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks={}\n#SBATCH --ntasks-per-node={}\n",
                                   slurm_name(job.id), job.nodes, job.world, job.ranks_per_node);
    if (job.gpus) text += fmt::format("#SBATCH --gpus-per-node={}\n", job.ranks_per_node);
    if (!job.partition.empty()) text += fmt::format("#SBATCH --partition={}\n", job.partition);
    if (job.segment > 0) text += fmt::format("#SBATCH --segment={}\n", job.segment);
    // A lost node must not restart the job without the launcher.
    return text + "#SBATCH --no-requeue\n#SBATCH --output=/dev/null\n";
}

std::string exports(const Job& job) {
    std::string text;
    for (const auto& [name, value] : job.environment) text += fmt::format("export {}={}\n", name, shell_word(value));
    for (const auto& [name, value] : job.weak_environment)
        text += fmt::format("[ -n \"${{{}+set}}\" ] || export {}={}\n", name, name, shell_word(value));
    if (job.meeting != Meeting::address) return text;
    switch (job.via) {
        case Via::slurm:
            text += "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n";
            // Two jobs may share a machine.
            text += "MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\nexport MASTER_ADDR MASTER_PORT\n";
            break;
        case Via::mpirun:
            if (!job.hostfile.empty()) {
                text += fmt::format("MASTER_ADDR=$(sed -n '/^[[:space:]]*[^#[:space:]]/{{s/^[[:space:]]*//;s/[[:space:]:].*//;p;q}}' {})\n",
                                    shell_word(job.hostfile));
                text += fmt::format("MASTER_PORT={}\nexport MASTER_ADDR MASTER_PORT\n", job.port);
                break;
            }
            [[fallthrough]];
        case Via::local:
            text += fmt::format("export MASTER_ADDR=127.0.0.1 MASTER_PORT={}\n", job.port);
            break;
        case Via::torchrun:
            break;  // sets them itself
    }
    return text;
}

/// Splits long commands over several lines, each of which begins with an option.
std::string command_lines(const std::vector<std::string>& words) {
    constexpr std::size_t kCommandWidth = 110;
    std::string text, line;
    for (const auto& word : words) {
        if (word.starts_with("--") && line.size() > kCommandWidth) {
            text += line + " \\\n    ";
            line.clear();
        }
        line += (line.empty() ? "" : " ") + shell_word(word);
    }
    return text + line;
}

/// The command of each rank: `mgplan rank` checks, logs and watches it.
std::string rank_words(const Job& job) {
    std::vector<std::string> words{job.program,        "rank",
                                   "--world",          std::to_string(job.meeting == Meeting::none ? 1 : job.world),
                                   "--ranks-per-node", std::to_string(job.meeting == Meeting::none ? 1 : job.ranks_per_node)};
    if (job.torch_variables) words.emplace_back("--torch-variables");
    return shell_words(words) + " --logs \"$logs\" -- \\\n    " + command_lines(job.command) + " \"${resume[@]}\"";
}

std::string mpirun_words(const Job& job) {
    std::vector<std::string> words{
        "mpirun", "-n", std::to_string(job.world), "--map-by", fmt::format("ppr:{}:node", job.ranks_per_node), "--rank-by", "slot"};
    if (!job.hostfile.empty()) {
        words.emplace_back("--hostfile");
        words.push_back(job.hostfile);
    }
    // CPU ranks may outnumber cores; the ranks themselves check the number of nodes.
    if (!job.gpus) words.emplace_back("--oversubscribe");
    words.emplace_back("--bind-to");
    words.emplace_back("none");
    std::string text = shell_words(words);
    if (!job.hostfile.empty()) {
        // mpirun passes to other machines only variables that are listed.
        std::vector<std::string> names;
        for (const auto* list : {&job.environment, &job.weak_environment})
            for (const auto& [name, value] : *list)
                if (!name.starts_with("OMPI_MCA_")) names.push_back(name);
        if (job.meeting == Meeting::address) names.insert(names.end(), {"MASTER_ADDR", "MASTER_PORT"});
        for (const auto& name : names) text += " -x " + name;
    }
    return text;
}

std::string srun_words(const Job& job) {
    // -K1: a rank that fails ends the step; without it the others may wait until the time limit.
    return fmt::format("srun -K1 --mpi={} --nodes={} --ntasks={} --ntasks-per-node={} --distribution=block:block",
                       job.meeting == Meeting::mpi ? "pmix" : "none", job.nodes, job.world, job.ranks_per_node);
}

std::string torchrun_words(const Job& job) {
    // Spellings that old and new versions accept.
    if (job.nodes == 1)
        return fmt::format("torchrun --nnodes=1 --nproc_per_node={} --master_addr=127.0.0.1 --master_port={} --max_restarts=0 --no_python",
                           job.world, job.port);
    return fmt::format(
        "torchrun --nnodes={} --nproc_per_node={} --node_rank=\"$NODE_RANK\" --master_addr=\"$MASTER_ADDR\" --master_port={} "
        "--max_restarts=0 --no_python",
        job.nodes, job.ranks_per_node, job.port);
}

/// A process for each rank on this machine, with torchrun's variables; the first that fails ends all.
std::string local_processes(const Job& job) {
    return fmt::format(
        "export WORLD_SIZE={}\n"
        "ranks=()\n"
        "trap 'kill -TERM \"${{ranks[@]}}\" 2>/dev/null' TERM INT\n"
        "for ((rank = 0; rank < WORLD_SIZE; ++rank)); do\n"
        "  RANK=$rank LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$WORLD_SIZE {} &\n"
        "  ranks+=($!)\n"
        "done\n"
        "code=0\n"
        "for ((ended = 0; ended < WORLD_SIZE; ++ended)); do\n"
        "  wait -n\n"
        "  status=$?\n"
        "  if ((status != 0 && code == 0)); then\n"
        "    code=$status\n"
        "    kill -TERM \"${{ranks[@]}}\" 2>/dev/null\n"
        "  fi\n"
        "done\n"
        "exit \"$code\"\n",
        job.world, rank_words(job));
}

/// Checks before the training that each segment's nodes, in the order in which ranks fill them, are in one of Slurm's blocks. With
/// topology/block Slurm gives every task of a step its node's block (SchedMD/slurm at 075a23b8,
/// src/plugins/topology/block/topology_block.c, topology_p_get_node_addr: "block.node" as SLURM_TOPOLOGY_ADDR_PATTERN); with another
/// topology the block is unknown, which the log says. On failure writes the same file as a rank that refuses its node
/// (jobs/rank_failure.hpp).
std::string segment_check(const Job& job) {
    // One line per node: its number in the job, the pattern, its block, its name.
    constexpr std::string_view kSay =
        R"sh(printf "%s %s %s %s\n" "$SLURM_NODEID" "${SLURM_TOPOLOGY_ADDR_PATTERN:--}" "${SLURM_TOPOLOGY_ADDR%.$SLURMD_NODENAME}" "$SLURMD_NODENAME")sh";
    constexpr std::string_view kCompare = R"awk(
    !/^[0-9]+ / { next }
    { ++lines; gsub(/[^A-Za-z0-9._ -]/, "?"); known += ($2 ~ /^block\./); block = $2 ~ /^block\./ ? "block " $3 : "no block" }
    $1 % segment == 0 { first = block; head = $NF }
    (block != first || (block == "no block" && $1 % segment)) && node == "" { node = $NF; rank = $1 * ranks; reason = node " is in " block " and " head " in " first }
    END {
      if (lines != nodes || !known) exit 3
      if (node == "") exit 0
      printf "{\"rank\": %d, \"node\": \"%s\", \"code\": 2, \"reason\": \"%s", rank, node, reason
      printf ", where every %d nodes are to be one NVLink domain, by the plan or --segment; ", segment
      printf "wait for nodes of whole blocks, ask for a smaller --segment, or for --segment 0 to train all the same\", \"log\": \"\"}\n"
      exit 2
    })awk";
    return fmt::format(
        "# Each {0} nodes are to be in one of Slurm's blocks, an NVLink domain.\n"
        "if places=$(srun --mpi=none --nodes={1} --ntasks={1} --ntasks-per-node=1 --distribution=block:block bash -c '{2}'); then\n"
        "  misplaced=$(sort -n <<<\"$places\" | awk -v segment={0} -v nodes={1} -v ranks={3} '{4}')\n"
        "  case $? in\n"
        "    2)\n"
        "      printf '%s\\n' \"$misplaced\" | tee \"$logs/failure.new\" && mv -f -- \"$logs/failure.new\" \"$logs/first_failure.json\"\n"
        "      printf '2\\n' >\"$logs/exit_code.new\" && mv -f -- \"$logs/exit_code.new\" \"$logs/exit_code\"\n"
        "      exit 2 ;;\n"
        "    3) echo 'mgplan: Slurm tells no blocks of nodes (topology/block): whether a segment is one NVLink domain is not known' ;;\n"
        "  esac\n"
        "else\n"
        "  echo 'mgplan: no node was asked for its block: whether a segment is one NVLink domain is not known'\n"
        "fi\n",
        job.segment, job.nodes, kSay, job.ranks_per_node, kCompare);
}

}  // namespace

std::string job_script(const Job& job) {
    std::string text = "#!/bin/bash\n";
    if (job.via == Via::slurm) text += slurm_options(job);
    text += fmt::format("# {}\n# {} ranks on {} node{}, {} on each; ranks fill nodes one after the other\n", one_line(job.title), job.world,
                        job.nodes, job.nodes == 1 ? "" : "s", job.ranks_per_node);
    if (needs_a_start_on_each_node(job)) text += "# to be started on each node, with NODE_RANK from 0 and MASTER_ADDR, the first node's\n";
    text += fmt::format("attempt=${{1:-1}}\nlogs={}/attempt-$attempt\nmkdir -p -- \"$logs\" || exit 4\n", shell_word(job.folder));
    if (job.via == Via::slurm) text += "exec >>\"$logs/job.log\" 2>&1 || exit 4\n";
    text += fmt::format("cd -- {} || exit 4\n", shell_word(job.working_directory));
    text += exports(job);
    text += "resume=()\n";
    if (!job.resume_words.empty()) text += fmt::format("if ((attempt > 1)); then resume=({}); fi\n", shell_words(job.resume_words));
    if (job.via == Via::slurm) {
        if (job.segment > 1) text += segment_check(job);
        text += fmt::format("{} \\\n  {}\ncode=$?\n", srun_words(job), rank_words(job));
        // Stored with the logs, because Slurm forgets a job after some minutes.
        return text +
               "printf '%s\\n' \"$code\" >\"$logs/exit_code.new\" && mv -f -- \"$logs/exit_code.new\" \"$logs/exit_code\"\nexit "
               "\"$code\"\n";
    }
    if (job.meeting == Meeting::none) return text + fmt::format("exec {}\n", rank_words(job));
    if (job.via == Via::local) return text + local_processes(job);
    return text + fmt::format("exec {} \\\n  {}\n", job.via == Via::mpirun ? mpirun_words(job) : torchrun_words(job), rank_words(job));
}

std::vector<std::string> start_command(const Job& job, int attempt) {
    if (job.via == Via::slurm) return {"sbatch", "--parsable", script_file(job), std::to_string(attempt)};
    return {"bash", script_file(job), std::to_string(attempt)};
}

bool needs_a_start_on_each_node(const Job& job) {
    return job.via == Via::torchrun && job.nodes > 1;
}

}  // namespace mgplan::reports
