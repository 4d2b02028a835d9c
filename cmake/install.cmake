# cmake --install, packages by CPack, and find_package(mgplan) for other projects.
#
# Two components: `programs` (the command with its presets inside, the CUDA module where it was built, manual page, completion, documentation)
# and `development` (the libraries that plan and predict, their headers, the CMake package). The libraries that run plans stay
# inside the command: what they link depends on the machine that built them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(exported_rooms plan model formats simulator planner reports)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/mgplan)

# --- programs -------------------------------------------------------------------------------------------------------
install(TARGETS mgplan RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
if(TARGET mgplan_cuda)
  # Where runtime/cuda_loader looks: ../lib/mgplan of the program.
  install(TARGETS mgplan_cuda LIBRARY DESTINATION lib/mgplan COMPONENT programs)
endif()

set(written ${PROJECT_BINARY_DIR}/documents)
set(documents mgplan.bash _mgplan mgplan.fish)
list(TRANSFORM documents PREPEND ${written}/ OUTPUT_VARIABLE document_files)
add_custom_command(
  OUTPUT ${document_files}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${written}
  COMMAND mgplan completion bash --output ${written}/mgplan.bash
  COMMAND mgplan completion zsh --output ${written}/_mgplan
  COMMAND mgplan completion fish --output ${written}/mgplan.fish
  DEPENDS mgplan
  VERBATIM)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_FOUND)
  set(script ${PROJECT_SOURCE_DIR}/cmake/manual_page.py)
  add_custom_command(OUTPUT ${written}/mgplan.1 COMMAND ${Python3_EXECUTABLE} ${script} $<TARGET_FILE:mgplan> ${written}/mgplan.1
    DEPENDS mgplan ${script} ${document_files} VERBATIM)
  list(APPEND document_files ${written}/mgplan.1)
  install(FILES ${written}/mgplan.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT programs)
else()
  message(STATUS "The manual page is left out: no Python 3 writes it")
endif()
add_custom_target(documents ALL DEPENDS ${document_files})
install(FILES ${written}/mgplan.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME mgplan COMPONENT programs)
install(FILES ${written}/_mgplan DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT programs)
install(FILES ${written}/mgplan.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT programs)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT programs FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")

# --- development ----------------------------------------------------------------------------------------------------
foreach(room IN LISTS exported_rooms)
  install(TARGETS mgplan_${room} EXPORT mgplan_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(DIRECTORY ${room} DESTINATION include/mgplan COMPONENT development FILES_MATCHING PATTERN "*.hpp")
endforeach()
install(EXPORT mgplan_targets FILE mgplan-targets.cmake NAMESPACE mgplan:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(cmake/mgplan-config.cmake.in ${PROJECT_BINARY_DIR}/mgplan-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mgplan-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mgplan-config.cmake ${PROJECT_BINARY_DIR}/mgplan-config-version.cmake
  DESTINATION ${package_folder} COMPONENT development)

# --- packages -------------------------------------------------------------------------------------------------------
set(CPACK_PACKAGE_NAME mgplan)
set(CPACK_PACKAGE_VENDOR "the mgplan developers")
set(CPACK_PACKAGE_CONTACT "the mgplan developers <mgplan@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plan, predict and run layouts for training large language models")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_FILE_NAME mgplan-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_COMPONENTS_ALL programs development)
# The .tar.gz holds both, the .deb come apart.
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME mgplan)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libmgplan-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfmt-dev, nlohmann-json3-dev, libyaml-cpp-dev")
include(CPack)
