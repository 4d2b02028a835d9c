#pragma once
// A folder that goes with the test.

#include <unistd.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace mgplan::tests {

class TemporaryFolder {
public:
    TemporaryFolder() {
        static int number = 0;
        path_ = ::testing::TempDir() + "mgplan_folder_" + std::to_string(::getpid()) + "_" + std::to_string(number++);
        std::filesystem::create_directories(path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace mgplan::tests
