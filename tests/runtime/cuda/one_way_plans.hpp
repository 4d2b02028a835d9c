#pragma once
// A library of fused attention that has no plan for one direction, as cuDNN may refuse what it does the other way.

#include <gtest/gtest.h>

#include "model/ops/fused_attention.hpp"

namespace mgplan::runtime::cuda {

class OneWayPlans final : public model::FusedPlans {
public:
    explicit OneWayPlans(bool refuses_backward) : refuses_backward_(refuses_backward) {}
    bool refuses(const model::FusedShape& shape, std::int64_t workspace_bytes) const override {
        EXPECT_EQ(workspace_bytes > 256, shape.backward) << "grouped heads want more in the backward alone";
        return shape.backward == refuses_backward_;
    }

private:
    bool refuses_backward_;
};

/// One that has no plan for packed heads.
class PlansForHeadsApart final : public model::FusedPlans {
public:
    bool refuses(const model::FusedShape& shape, std::int64_t /*workspace_bytes*/) const override { return shape.packed; }
};

}  // namespace mgplan::runtime::cuda
