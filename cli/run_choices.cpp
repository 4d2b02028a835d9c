#include "cli/run_choices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/training/training_task.hpp"
#include "plan/layout/layout_switches.hpp"

namespace mgplan::cli {

std::vector<std::string> replace_choices_of_megatron(Plan& plan) {
    std::vector<std::string> replaced;
    if (plan.layout.engine != Engine::megatron) return replaced;
    if (plan.model.moe && plan.model.moe->dispatcher != TokenDispatcher::all_to_all) {
        replaced.push_back(fmt::format("exchanges tokens by {} in place of the plan's {}", dispatcher_word(TokenDispatcher::all_to_all),
                                       dispatcher_word(plan.model.moe->dispatcher)));
        plan.model.moe->dispatcher = TokenDispatcher::all_to_all;
    }
    if (plan.layout.cuda_graphs.empty()) return replaced;
    model::TrainingTask task;
    task.model = plan.model;
    task.batch = plan.batch;
    task.training = plan.training;
    task.layout = plan.layout;
    task.layout.engine = Engine::mgplan;
    const std::size_t with_graphs = model::features_not_executed(task).size();
    task.layout.cuda_graphs = {};
    if (model::features_not_executed(task).size() == with_graphs) return replaced;
    replaced.push_back(fmt::format("captures no CUDA graphs in place of the plan's {}", fmt::join(names_in(plan.layout.cuda_graphs), ",")));
    plan.layout.cuda_graphs = {};
    return replaced;
}

}  // namespace mgplan::cli
