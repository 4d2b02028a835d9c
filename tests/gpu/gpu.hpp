#pragma once
// Tests that need a GPU: they are skipped, with the reason, where there is none.

#include <memory>

#include <gtest/gtest.h>

#include "runtime/cuda_loader/cuda_loader.hpp"

namespace mgplan::tests {

class GpuTest : public testing::Test {
protected:
    void SetUp() override {
        try {
            module_ = &runtime::cuda_module();
        } catch (const runtime::CudaUnavailable& error) {
            GTEST_SKIP() << error.what();
        }
    }
    [[nodiscard]] std::unique_ptr<runtime::CudaDeviceInterface> device(int rank = 0) const { return module_->make_device(0, rank); }
    [[nodiscard]] model::KernelTraits traits() const { return module_->cards().at(0).traits; }

    runtime::CudaModule* module_ = nullptr;
};

/// Tests that tests/gpu/run leaves out on cards that are too old (correctness.py, FP8_CARDS).
class GpuFp8 : public GpuTest {
protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (!IsSkipped() && traits().architecture < 89) GTEST_SKIP() << "a card before Ada has no fp8; run refuses it";
    }
};

}  // namespace mgplan::tests
