// Predicts memory and time of one model on eight GPUs for every tensor parallel size, with mgplan as a library.
//
// usage: predict_from_code [MODEL [CLUSTER]]     what --model and --cluster take; default llama3-8b and dgx-h100

#include <cstdio>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"

int main(int argc, char** argv) {
    try {
        mgplan::Workload workload;
        workload.model = mgplan::formats::load_model(argc > 1 ? argv[1] : "llama3-8b").model;
        workload.cluster = mgplan::load_cluster(argc > 2 ? argv[2] : "dgx-h100");
        workload.batch = {.global_batch = 64, .sequence = 4096};
        workload.world = 8;
        workload.memory_limit = workload.cluster.memory_bytes;

        mgplan::simulator::CostModel model(workload);
        for (const int tp : {1, 2, 4, 8}) {
            mgplan::LayoutRequest request;
            request.tp = tp;
            request.sequence_parallel = tp > 1;
            const mgplan::Layout layout = mgplan::planner::make_layout(request, workload);
            const auto predicted = model.predict_exactly(layout);
            std::printf("tp %d: %.1f GiB, %.3f s\n", tp, static_cast<double>(predicted.memory.worst.peak_bytes()) / (1 << 30),
                        predicted.time.iteration_seconds);
        }
    } catch (const mgplan::ConfigError& error) {  // one line for each problem
        for (const auto& problem : error.problems()) std::fprintf(stderr, "%s\n", problem.c_str());
        return 2;
    }
    return 0;
}
