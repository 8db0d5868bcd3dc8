/* C++ streams: files, and the standard ones with our descriptors under them. */
#include "t.h"
#include <fstream>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <algorithm>
#include <vector>

int main(int argc, char **argv) {
    begin(argc, argv);
    int fd = open("si", O_WRONLY | O_CREAT, 0666);
    dprintf(fd, "7 eight\nnine\n");
    close(fd);
    pid_t pid = fork();
    if (pid == 0) {
        fd = open("so", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(fd, 1);
        close(fd);
        fd = open("si", O_RDONLY);
        dup2(fd, 0);
        close(fd);
        int n;
        std::string word, line;
        std::cin >> n >> word;
        std::cout << "cout " << n << word << std::endl;
        printf("mixed ");
        std::getline(std::cin, line);
        std::getline(std::cin, line);
        std::cout << line << std::flush;
        std::wcerr << 1;
        exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    show("so");
    {
        std::ofstream o("f");
        for (int i = 0; i < 5000; i++)
            o << "row " << i << '\n';
        o.seekp(3);
        o << 'X';
    }
    show("f");
    std::fstream io("f", std::ios::in | std::ios::out | std::ios::ate);
    say("at %ld", (long)io.tellg());
    io << "tail\n";
    io.seekg(0);
    std::string line;
    long lines = 0;
    while (std::getline(io, line))
        lines++;
    say("lines %ld good %d", lines, io.good());
    say("missing %d", std::ifstream("none").is_open());
    namespace fs = std::filesystem;
    fs::create_directories("tree/a/b");
    std::ofstream("tree/a/b/leaf") << "leaf";
    std::ofstream("tree/a/x") << "x";
    std::vector<std::string> names;
    for (auto &e : fs::recursive_directory_iterator("tree"))
        names.push_back(e.path().string() + (e.is_directory() ? "/" : ""));
    std::sort(names.begin(), names.end());
    for (auto &n : names)
        say("%s", n.c_str());
    fs::copy_file("tree/a/x", "tree/y");
    say("size %ld", (long)fs::file_size("tree/y"));
    say("removed %ld", (long)fs::remove_all("tree"));
    say("canonical %d", fs::canonical("f") == fs::current_path() / "f");
    return 0;
}
