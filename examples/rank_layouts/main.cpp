// Ranks every layout of one model on 64 GPUs, with mgplan as a library: what `mgplan --world 64 --model MODEL` prints.
//
// usage: rank_layouts [MODEL [CLUSTER]]     what --model and --cluster take; default llama3-8b and dgx-h100

#include <cstdio>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "planner/ranking.hpp"

int main(int argc, char** argv) try {
    mgplan::Workload workload;
    workload.model = mgplan::formats::load_model(argc > 1 ? argv[1] : "llama3-8b").model;
    workload.cluster = mgplan::load_cluster(argc > 2 ? argv[2] : "dgx-h100");
    workload.batch = {.global_batch = 256, .sequence = 4096};
    workload.world = 64;
    workload.memory_limit = workload.cluster.memory_bytes;
    mgplan::planner::SearchSpace space;
    space.engine = mgplan::Engine::megatron;
    mgplan::planner::RankingOptions options;
    options.headroom_bytes = workload.memory_limit / 20;
    for (const auto& plan : mgplan::planner::rank_layouts(workload, space, options).plans) {
        const auto& [time, memory] = plan.prediction;
        std::printf("%zu: %s, %.3f s, %.1f GiB%s\n", plan.rank, mgplan::summary(plan.layout).c_str(), time.iteration_seconds,
                    static_cast<double>(memory.worst.peak_bytes()) / (1 << 30), plan.recommended ? ", recommended" : "");
    }
} catch (const mgplan::ConfigError& error) {  // one line for each problem
    for (const auto& problem : error.problems()) std::fprintf(stderr, "%s\n", problem.c_str());
    return 2;
}
