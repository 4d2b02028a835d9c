#pragma once
// What `mgplan run` is given, for the small models of small_models.hpp.

#include <memory>

#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/gpu/small_models.hpp"

namespace mgplan::tests {

inline runtime::TrainingRunOptions run_of(const ModelSpec& model, const Case& layout, Precision precision) {
    runtime::TrainingRunOptions run;
    run.task = task_for(model, layout, precision, kPlaces);
    run.steps = kSteps;
    run.learning_rate.maximum = 1e-2;
    run.data = std::make_shared<runtime::Sequences>(std::make_shared<runtime::SyntheticStream>(1, model.vocab), kPlaces, 8, 1);
    return run;
}

}  // namespace mgplan::tests
